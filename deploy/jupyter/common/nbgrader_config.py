"""nbgrader's settings on the hub, for everyone; the grader's own autograder/nbgrader_config.py is read after it."""

import os
from pathlib import Path

c = get_config()  # noqa: F821 - nbgrader puts it here

c.CourseDirectory.course_id = "allranks"
if "ALLRANKS_EXCHANGE" in os.environ:  # not in a pod, which shares no disk
    c.Exchange.root = os.environ["ALLRANKS_EXCHANGE"]
if url := os.environ.get("ALLRANKS_HANDIN_URL"):  # in a pod: the hub's service keeps what is handed in
    c.HandIn.url = url
    c.Exchange.assignment_dir = str(Path.home() / "allranks" / "labs")
    c.ExchangeFactory.exchange = "allranks.jupyter.exchange.HandIn"
    c.ExchangeFactory.list = "allranks.jupyter.exchange.List"
    c.ExchangeFactory.fetch_assignment = "allranks.jupyter.exchange.FetchAssignment"
    c.ExchangeFactory.fetch_feedback = "allranks.jupyter.exchange.FetchFeedback"
    c.ExchangeFactory.submit = "allranks.jupyter.exchange.Submit"
if os.environ.get("ALLRANKS_HUB_ROLE") == "learner":
    c.Exchange.assignment_dir = str(Path.home() / "allranks" / "labs")
    # who would be refused is told before, not after
    c.ExchangeFactory.submit = "allranks.jupyter.submit.Submit"
    # the hub says who is in the course; the grader hands out to all and needs no leave
    c.Authenticator.plugin_class = "nbgrader.auth.JupyterHubAuthPlugin"
