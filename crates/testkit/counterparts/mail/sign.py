"""Signs mails with dkimpy, an independent implementation: one request per line, one signed mail per line.

A request is JSON: `mail` in base64, and either nothing else (the mail comes back unchanged), `dkim`
(`domain`, `selector`, `key`, `headers`, `length`), or both `dkim` and `seal` (`domain`, `selector`, `key`, `says`), which
adds an ARC set on top with these authentication results.
"""
import base64
import json
import sys

import dkim


def signed(wish):
    mail = base64.b64decode(wish["mail"])
    made = wish.get("dkim")
    if made:
        key = open(made["key"], "rb").read()
        headers = [name.encode() for name in made["headers"]]
        signer = dkim.DKIM(mail)
        mail = signer.sign(
            made["selector"].encode(), made["domain"].encode(), key, include_headers=headers,
            length=made.get("length", False), canonicalize=(b"relaxed", b"relaxed"),
        ) + mail
    if wish.get("spoil"):
        mail = mail.replace(wish["spoil"][0].encode(), wish["spoil"][1].encode(), 1)
    seal = wish.get("seal")
    if seal:
        key = open(seal["key"], "rb").read()
        # The ARC signer reads the results from a header of its own server.
        mail = ("Authentication-Results: " + seal["says"] + "\r\n").encode() + mail
        lines = dkim.arc_sign(
            mail, seal["selector"].encode(), seal["domain"].encode(), key, seal["says"].split(";")[0].encode(),
            include_headers=[b"from", b"to", b"subject", b"date", b"message-id"],
        )
        mail = b"".join(lines) + mail
    return base64.b64encode(mail).decode()


for line in sys.stdin:
    print(signed(json.loads(line)), flush=True)
