"""Every promise of docs/security.md, and of the pages that it leads to, names a test that exists."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TESTS = ROOT / "tests"
FUNCTIONS = {
    name
    for path in TESTS.rglob("*.py")
    for name in re.findall(r"^(?:async )?def (test_\w+)", path.read_text(encoding="utf-8"), re.MULTILINE)
}
# "What a submission can and can't do" of docs/instructor.md, by the first words of each row
SUBMISSIONS = {
    "change the graded cells": (
        "test_forged_metadata_is_put_back",
        "test_deleted_graded_cells_come_back",
        "test_of_two_cells_with_one_id_the_last_counts",
    ),
    "name another exercise": ("test_a_cell_can_not_name_another_exercise",),
    "print, patch": ("test_nothing_is_gained", "test_brought_down_it_says_how_and_the_next_one_is_marked"),
    "read the solutions": ("test_can_not_ask_an_oracle", "test_sees_nothing_of_the_course"),
    "network, files for later": (
        "test_has_no_network",
        "test_can_not_write_outside_of_its_own_folders",
        "test_what_it_leaves_running_is_killed_with_it",
    ),
    "talk to another rank": (
        "test_one_rank_sees_no_file_of_another",
        "test_no_rank_wakes_another",
        "test_no_futex_is_shared",
        "test_one_rank_leaves_no_word_for_another_in_the_kernel",
        "test_calls_that_are_newer_than_the_list_are_refused",
    ),
    "start processes": ("test_starts_no_process_and_no_program", "test_threads_and_gradients_work"),
    "loop, fill memory": (
        "test_an_endless_loop_is_stopped_and_costs_its_own_cell_only",
        "test_its_seconds_can_not_be_had_back",
        "test_memory_is_limited",
        "test_memory_that_is_not_mapped_is_limited",
        "test_disk_is_limited",
    ),
    "delay or crash the judge": (
        "test_past_the_limit_it_is_killed_with_all_its_ranks_and_the_next_one_is_marked",
        "test_brought_down_while_it_is_asked_it_says_how",
    ),
    "put scripts into text cells": (
        "test_a_link_that_runs_leads_nowhere",
        "test_a_link_and_a_picture_are_shown_as_text",
        "test_nothing_in_a_text_is_loaded_from_elsewhere",
        "test_formgrader_shows_the_points_and_runs_no_script_of_a_student",
    ),
    "fill the judge's memory": (
        "test_ranks_that_say_too_much_end_the_run",
        "test_what_is_logged_of_payloads_is_bounded",
        "test_a_run_that_is_over_keeps_no_message",
    ),
    "a cell that takes hours": (
        "test_blank_lines_without_end_are_left_out_and_that_is_said",
        "test_long_lines_many_lines_and_many_cells_are_cut_and_each_is_said",
        "test_what_takes_too_long_is_shown_as_text",
        "test_a_text_too_long_to_be_shown_is_cut_and_says_so",
    ),
    "metadata that stops nbconvert": ("test_metadata_that_the_course_does_not_need_never_reaches_the_page",),
    "escapes and line breaks": (
        "test_what_can_not_be_seen_is_replaced",
        "test_a_further_line_never_looks_like_a_first_one",
    ),
    "hand in late": ("test_the_time_is_when_the_files_came_and_not_what_they_say",),
    "hand in without being": ("test_only_members_are_collected_and_the_others_are_named",),
    "a file that is not a notebook": ("test_what_is_no_submission_is_not_graded_and_named",),
    "a link in the exchange": ("test_a_link_is_collected_as_a_link_and_not_as_what_it_leads_to",),
    "replace a file or folder": (
        "test_a_file_swapped_for_a_link_when_it_is_opened_brings_nothing",
        "test_a_folder_within_swapped_for_a_link_brings_nothing",
        "test_a_hard_link_to_somebody_elses_file_brings_nothing",
    ),
    "a submission that vanishes": (
        "test_a_submission_that_vanishes_after_it_was_chosen_stops_nobody",
        "test_a_file_that_grows_when_it_is_opened_is_not_collected",
        "test_more_files_than_can_be_graded_are_not_collected",
        "test_all_files_together_have_a_limit",
        "test_a_folder_too_deep_to_be_copied_stops_nobody_and_leaves_what_was_collected_before",
    ),
    "hand in under another": ("test_nobody_hands_in_for_somebody_else",),
    "a program that would run": ("test_no_program_that_runs_as_its_owner_becomes_ours",),
    "HTML or scripts beside": ("test_what_lies_beside_a_notebook_is_not_served_to_the_instructor",),
}
# "What one person can't do to another" of docs/jupyterhub.md
PEOPLE = {
    "Open another person's server": (
        "test_nobody_gets_into_anothers_server",
        "test_formgrader_is_for_instructors",
        "test_restart_and_idle",
    ),
    "Read another person's home": ("test_a_chapter_live_in_both_at_once", "test_submit"),
    "Signal another person's rank": ("test_a_chapter_live_in_both_at_once",),
}


def section(page: str, heading: str) -> str:
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    return re.split(r"^#", text.split(f"\n## {heading}\n", 1)[1], maxsplit=1, flags=re.MULTILINE)[0]


def rows(text: str) -> list[list[str]]:
    """The cells of a table's rows, without its head."""
    lines = [line for line in text.splitlines() if line.startswith("|")][2:]
    return [[cell.strip() for cell in line.strip().strip("|").split("|")] for line in lines]


def named(text: str) -> list[str]:
    return re.findall(r"`((?:tests/[\w/]+(?:\.py|/))|test_\w+)`", text)


def exists(name: str) -> bool:
    return (ROOT / name).exists() if name.startswith("tests/") else name in FUNCTIONS


def test_each_promise_about_another_user_names_its_test():
    promises = rows(section("security.md", "Another user of the same machine"))
    assert len(promises) > 10
    for promise, _, tests in promises:
        assert named(tests), f"no test is named for: {promise}"


def test_each_line_of_what_is_stored_names_its_test():
    lines = rows(section("privacy.md", "What is stored where"))
    assert len(lines) > 10
    for what, *_, tests in lines:
        assert named(tests), f"no test is named for: {what}"


@pytest.mark.parametrize("page", ["security.md", "instructor.md", "jupyterhub.md", "gpus.md", "privacy.md"])
def test_every_test_that_a_page_names_exists(page):
    names = named((ROOT / "docs" / page).read_text(encoding="utf-8"))
    assert names and [name for name in names if not exists(name)] == []


@pytest.mark.parametrize(
    ("table", "promises"),
    [
        (SUBMISSIONS, [row[0] for row in rows(section("instructor.md", "What a submission can and can't do"))]),
        (
            PEOPLE,
            re.findall(r"^- (.+)", section("jupyterhub.md", "What one person can't do to another"), re.MULTILINE),
        ),
    ],
    ids=["submissions", "people"],
)
def test_each_promise_of_a_list_has_its_tests(table, promises):
    assert len(promises) == len(table)
    for promise in promises:
        (tests,) = [tests for words, tests in table.items() if promise.startswith(words)]
        assert tests and [name for name in tests if not exists(name)] == [], promise
