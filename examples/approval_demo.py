#!/usr/bin/env python3
"""Makes a call that needs approval, answers the approval request as a person would, and reads the result.

Needs a running gateway and two credentials: an agent key that makes the call and an inbox key that submits replies. A reply
counts if it carries the token of the e-mail that it answers, or if the gateway trusts the sender that the inbox key states:

    inbox: {trust_sender: true}
    approvals: {people: [{name: ana, email: ana@example.com}]}

    SLUICE_URL=http://127.0.0.1:7420 SLUICE_AGENT_KEY=sga_... SLUICE_INBOX_KEY=sgi_... SLUICE_PERSON=ana@example.com \
        python3 examples/approval_demo.py
"""

import json
import os
import sys
import urllib.error
import urllib.request

URL = os.environ.get("SLUICE_URL", "http://127.0.0.1:7420")


def call(method, path, key, body=None):
    """One request; gives the status and the answer."""
    data = None if body is None else json.dumps(body).encode()
    headers = {"Authorization": f"Bearer {key}"}
    if data is not None:
        headers["Content-Type"] = "application/json"
    request = urllib.request.Request(URL + path, data=data, headers=headers, method=method)
    try:
        with urllib.request.urlopen(request, timeout=70) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


def expect(wanted, status, body):
    if status != wanted:
        sys.exit(f"expected {wanted}, got {status}: {body}")
    return body


def main():
    agent, inbox = os.environ["SLUICE_AGENT_KEY"], os.environ["SLUICE_INBOX_KEY"]
    wish = {
        "session_id": "sess_demo",
        "action_type": "exec_cmd",
        "title": "Run command",
        "preview": "rm -rf ./build && npm run build",
        "expires_in_sec": 600,
    }
    asked = expect(200, *call("POST", "/v1/approvals", agent, wish))
    approval = asked["approval_id"]
    print(f"asked: {approval} is {asked['status']}")

    reply = {"subject": f"Re: Run command [{approval}]", "body": "1"}
    expect(403, *call("POST", "/v1/inbox/email-reply", agent, reply))
    print("the agent cannot answer itself")

    refused = expect(403, *call("POST", "/v1/inbox/email-reply", inbox, reply))
    print(f"the id alone decides nothing: {refused['code']}")

    reply["from"] = os.environ["SLUICE_PERSON"]
    # The quoted e-mail is recognised by the approval's id in it; other text below the answer would need a confirmation.
    reply["body"] = f"4 add logs\n\nOn Tue, 5 Nov 2024, the gate wrote:\n> {approval}\n> 1  Allow once\n"
    answered = expect(200, *call("POST", "/v1/inbox/email-reply", inbox, reply))
    print(f"replied: {answered['status']}")

    seen = expect(200, *call("GET", f"/v1/approvals/{approval}?wait_ms=5000", agent))
    if seen["decision"] != {"code": "4", "note": "add logs", "override": None}:
        sys.exit(f"unexpected decision: {seen}")
    print(f"read: {seen['status']} with the note {seen['decision']['note']!r}")


if __name__ == "__main__":
    main()
