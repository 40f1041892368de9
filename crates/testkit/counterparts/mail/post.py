"""A third-party mail server: Dovecot stores the mailboxes, aiosmtpd accepts sent mail.

Takes a folder and starts both on free ports of this machine; writes `post.json` there, prints `ready FILE`, and ends
when its standard input ends. Any user of `example.test` has a mailbox; the password of all of them is in `post.json`.
Mail to a mailbox of `example.test` is delivered over LMTP. Recipients that begin with
`reject`, `tempfail` and `drop` get 550, 451, and a connection that is cut before the answer.
"""
import json
import os
import smtplib
import socket
import ssl
import subprocess
import sys
import time

from aiosmtpd.controller import Controller
from aiosmtpd.smtp import SMTP, AuthResult, LoginPassword

PASSWORD = "open-sesame-for-tests"
CONF = """
base_dir = {folder}/run
state_dir = {folder}/run
log_path = {folder}/dovecot.log
protocols = imap lmtp
listen = 127.0.0.1
ssl = yes
ssl_cert = <{folder}/cert.pem
ssl_key = <{folder}/key.pem
disable_plaintext_auth = no
auth_mechanisms = plain login
auth_cache_size = 0
mail_location = maildir:{folder}/mail/%u
mail_uid = mail
mail_gid = mail
first_valid_uid = 1
first_valid_gid = 1
mail_max_userip_connections = 100
recipient_delimiter = +
passdb {{
  driver = static
  args = password={password}
}}
userdb {{
  driver = static
  args = uid=mail gid=mail home={folder}/mail/%u allow_all_users=yes
}}
service imap-login {{
  inet_listener imap {{
    port = {imap}
  }}
  inet_listener imaps {{
    port = {imaps}
    ssl = yes
  }}
}}
service lmtp {{
  inet_listener lmtp {{
    address = 127.0.0.1
    port = {lmtp}
  }}
}}
service stats {{
  client_limit = 200
}}
namespace inbox {{
  inbox = yes
  separator = /
  mailbox Done {{
    auto = subscribe
  }}
}}
protocol lmtp {{
  postmaster_address = postmaster@example.test
}}
"""


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def run(*words):
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def keys(folder):
    """A key pair per domain, and the DNS record its owner would publish."""
    made = {}
    for domain in ("example.test", "evil.test", "lists.test"):
        private = f"{folder}/{domain}.pem"
        run("openssl", "genrsa", "-traditional", "-out", private, "2048")
        out = subprocess.run(["openssl", "rsa", "-in", private, "-pubout", "-outform", "DER"], check=True, capture_output=True)
        import base64

        made[domain] = {"key": private, "record": "v=DKIM1; k=rsa; p=" + base64.b64encode(out.stdout).decode()}
    return made


class Taken:
    def __init__(self, lmtp):
        self.lmtp = lmtp

    async def handle_RCPT(self, server, session, envelope, address, options):
        name = address.split("@")[0]
        if name.startswith("reject"):
            return "550 5.1.1 no such user"
        if name.startswith("tempfail"):
            return "451 4.3.0 try later"
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(self, server, session, envelope):
        with smtplib.LMTP("127.0.0.1", self.lmtp) as post:
            post.sendmail(envelope.mail_from, envelope.rcpt_tos, envelope.content)
        if any(address.startswith("drop") for address in envelope.rcpt_tos):
            server.transport.abort()
        return "250 2.0.0 accepted"


def allowed(server, session, envelope, mechanism, data):
    known = isinstance(data, LoginPassword) and data.login == b"gate@example.test" and data.password == PASSWORD.encode()
    return AuthResult(success=known, handled=known)


def main(folder):
    for name in ("run", "mail"):
        os.makedirs(f"{folder}/{name}", exist_ok=True)
    run("chown", "mail:mail", f"{folder}/mail")
    run(
        "openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "365", "-subj", "/CN=localhost",
        "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1", "-addext", "basicConstraints=critical,CA:FALSE",
        "-addext", "extendedKeyUsage=serverAuth", "-keyout", f"{folder}/key.pem", "-out", f"{folder}/cert.pem",
    )
    ports = {name: free_port() for name in ("imap", "imaps", "lmtp", "smtp")}
    with open(f"{folder}/dovecot.conf", "w") as conf:
        conf.write(CONF.format(folder=folder, password=PASSWORD, **ports))
    dovecot = subprocess.Popen(["dovecot", "-F", "-c", f"{folder}/dovecot.conf"], stdin=subprocess.DEVNULL)
    try:
        for port in (ports["imap"], ports["imaps"], ports["lmtp"]):
            for _ in range(300):
                if dovecot.poll() is not None:
                    sys.exit("dovecot does not start")
                try:
                    socket.create_connection(("127.0.0.1", port), 1).close()
                    break
                except OSError:
                    time.sleep(0.1)
        tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        tls.load_cert_chain(f"{folder}/cert.pem", f"{folder}/key.pem")

        class Office(Controller):
            def factory(self):
                return SMTP(
                    self.handler, tls_context=tls, require_starttls=True, auth_required=True, auth_require_tls=True,
                    authenticator=allowed, enable_SMTPUTF8=True,
                )

        office = Office(Taken(ports["lmtp"]), hostname="127.0.0.1", port=ports["smtp"])
        office.start()
        about = dict(ports, ca=f"{folder}/cert.pem", password=PASSWORD, python=sys.executable, domains=keys(folder))
        with open(f"{folder}/post.json", "w") as file:
            json.dump(about, file)
        print(f"ready {folder}/post.json", flush=True)
        sys.stdin.read()
        office.stop()
    finally:
        dovecot.terminate()
        dovecot.wait()


if __name__ == "__main__":
    main(os.path.abspath(sys.argv[1]))
