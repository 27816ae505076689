"""The map of the course, drawn from a reader's state: as a page, as a picture, at the end of a chapter, as plain text.

`page.page` is the whole page, `drawing.drawing` the picture in it, `end.done` the line at the end of a chapter, `words.text` the map for a terminal.
They all take a `course.state.State`. Imports without torch.
"""
