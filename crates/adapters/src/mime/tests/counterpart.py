"""A second reader of mails: the `email` package of Python, with its default policy.

Reads `<length>\n<bytes>` again and again from standard input; prints one JSON line for each mail: sender, subject, and
the words of its plain texts and of its HTML texts. Character sets are taken as browsers take them: what calls itself
ASCII or Latin-1 is windows-1252, what is not named is UTF-8, what cannot be decoded is replaced.
"""

import codecs
import email
import email.policy
import json
import sys

POLICY = email.policy.default
LIKE_BROWSERS = {"ascii": "cp1252", "iso8859-1": "cp1252", "gb2312": "gb18030", "shift_jis": "cp932", "euc_kr": "cp949"}


def header(message, name):
    """The first header of a name as the policy reads it; what is not ASCII is UTF-8."""
    for found, value in message.raw_items():
        if found.lower() == name:
            text = "".join(value.splitlines()) if isinstance(value, str) else str(value)
            text = text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
            return POLICY.header_factory(name, text.lstrip())
    return None


def sender(message):
    found = header(message, "from")
    if found is None:
        return None
    addresses = [one for one in found.addresses if one.domain]
    return addresses[0].addr_spec if addresses else None


def decoded(part):
    content = part.get_payload(decode=True)
    if content is None:
        return ""
    charset = part.get_param("charset")
    if isinstance(charset, tuple):
        charset = charset[2]
    try:
        name = codecs.lookup(charset.strip("'\" ")).name if charset else "utf-8"
    except (LookupError, ValueError):
        name = "utf-8"
    return content.decode(LIKE_BROWSERS.get(name, name), "replace")


def texts(message, wanted):
    found = []

    def look(part, parent, place):
        if part.is_multipart():
            if part.get_content_maintype() != "message":
                for at, inner in enumerate(part.get_payload()):
                    look(inner, part.get_content_type(), at)
            return
        kind = part.get_content_type()
        attached = part.get_content_disposition() == "attachment"
        if parent is None:
            shown = not attached or kind == "text/plain"
        elif parent == "multipart/alternative":
            shown = True
        else:
            shown = not attached and (place == 0 or (parent != "multipart/related" and not part.get_filename()))
        if kind == wanted and shown:
            found.append(decoded(part))

    look(message, None, 0)
    return " ".join(found)


def main():
    stdin = sys.stdin.buffer
    while line := stdin.readline():
        raw = stdin.read(int(line))
        try:
            message = email.message_from_bytes(raw, policy=POLICY)
            subject = header(message, "subject")
            read = {
                "from": sender(message),
                "subject": " ".join(str(subject or "").split()),
                "text": " ".join(texts(message, "text/plain").split()),
                "html": " ".join(texts(message, "text/html").split()),
            }
        except Exception as error:  # It is known to stumble over some mails: then it names nothing.
            read = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(read))


main()
