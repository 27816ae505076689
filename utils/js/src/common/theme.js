// The style sheet that the widgets share with Python's HTML: one meaning a colour, in both themes.
export { default as THEME } from "../../../allranks/base/theme.css";
