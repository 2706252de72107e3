package attacks

import (
	"fmt"
	"slices"
	"strings"
)

// The tables of this file have bytes of HTTP/1.1 as they are written to a connection. Placeholders such as {host} are replaced
// before (see the type attack).

// smuggled is a second request, by alice, which some attacks have behind their end. A server answers it if it believes that the
// attack ended before it, and swallows it if it takes these bytes for the attack's body. Both servers must do the same. The
// audit log shows whether kube-apiserver got it.
const smuggled = "GET /api/v1/pods?smuggled=1 HTTP/1.1\r\nHost: {host}\r\nAudit-Id: {id}.smuggled\r\n" +
	"Authorization: Bearer {token:alice}\r\n\r\n"

// attackerHeaders are the header lines of every attack. {authorization} is the whole Authorization line, or nothing.
const attackerHeaders = "Host: {host}\r\nUser-Agent: attacker\r\nAudit-Id: {id}.1\r\n{authorization}"

// A GET of a list that is in memory, and a POST: the first line and the usual headers. More headers, the empty line at their
// end, and a body are to follow.
const (
	getHead  = "GET " + podsOfA + " HTTP/1.1\r\n" + attackerHeaders
	postHead = "POST /api/v1/namespaces/team-a/pods HTTP/1.1\r\nContent-Type: application/json\r\n" + attackerHeaders
)

// nameAfter returns the beginning of a text, quoted, as the name of an attack.
func nameAfter(text string) string { return fmt.Sprintf("%.80q", text) }

// targetAttacks have an odd first line: a target that is no path, another version of HTTP, or bytes that do not belong there.
func targetAttacks() []attack {
	out := []attack{
		{bytes: "GET " + podsOfA + "\r\n\r\n"},
		{bytes: "\x16\x03\x01\x00\x05hello\r\n\r\n"},
		{bytes: "\r\n\r\n\r\n\r\n"},
		{name: "preface of HTTP/2", bytes: "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", verdict: refused},
	}
	// add adds requests with these first lines and the usual headers.
	add := func(v verdict, firstLines ...string) {
		for _, line := range firstLines {
			out = append(out, attack{bytes: line + "\r\n" + attackerHeaders + "\r\n", verdict: v})
		}
	}
	add(
		refused,
		// Absolute URLs: of this host with TLS and without, of another host, with a user, and of a file.
		"GET https://{host}"+podsOfA+" HTTP/1.1", "GET http://{host}"+podsOfA+" HTTP/1.1",
		"GET https://example.com"+podsOfA+" HTTP/1.1", "GET https://admin@{host}"+podsOfA+" HTTP/1.1",
		"GET file:///etc/passwd HTTP/1.1",
		// A host, and the whole server.
		"GET {host} HTTP/1.1", "GET * HTTP/1.1",
		// Requests for a tunnel: to kube-apiserver, to another machine, and to a path.
		"CONNECT {host} HTTP/1.1", "CONNECT 169.254.169.254:80 HTTP/1.1", "CONNECT "+podsOfA+" HTTP/1.1",
	)
	add(
		answeredAsUpstream,
		// Targets that are no absolute path: the whole server, a relative path, and none.
		"OPTIONS * HTTP/1.1", "GET api/v1/pods HTTP/1.1", "GET HTTP/1.1",
		// Two targets, two spaces, tabs, and something before the method.
		"GET "+podsOfA+" /version HTTP/1.1", "GET  "+podsOfA+" HTTP/1.1", "GET\t"+podsOfA+"\tHTTP/1.1",
		" GET "+podsOfA+" HTTP/1.1", "\r\nGET "+podsOfA+" HTTP/1.1",
		// Control characters and a fragment in the target.
		"GET /api/v1/pods\x00 HTTP/1.1", "GET /api/v1/pods\r HTTP/1.1", "GET /api/v1/pods\x7f HTTP/1.1", "GET "+podsOfA+"#x HTTP/1.1",
		// Other versions of HTTP, and another spelling.
		"GET "+podsOfA+" HTTP/1.0", "GET "+podsOfA+" HTTP/1.2", "GET "+podsOfA+" HTTP/2.0", "GET "+podsOfA+" HTTP/3.0",
		"GET "+podsOfA+" http/1.1",
		// A malformed method, and none.
		"GE(T "+podsOfA+" HTTP/1.1", podsOfA+" HTTP/1.1",
	)
	return withUsers(podReaders, out...)
}

// lineAttacks have a malformed header line, or a second Host. A lenient parser could read it as a header that changes the user
// or the length.
func lineAttacks() []attack {
	lines := []string{
		": admin\r\n",                        // no name
		"Imperson@te-User: admin\r\n",        // a character that no name may have
		"Imp\xc3\xa9rsonate-User: admin\r\n", // é in UTF-8
		"Imper\u017fonate-User: admin\r\n",   // the long s, whose capital is S
		"Host: example.com\r\n",              // a second Host
	}
	for _, name := range []string{"Impersonate-User", "X-Remote-User", "Authorization", "Transfer-Encoding"} {
		for _, template := range []string{
			// A space or a tab around the name.
			"NAME : admin\r\n", "NAME\t: admin\r\n", " NAME: admin\r\n",
			// A line that goes on behind its end: the value, or the header itself, is the continuation of a line.
			"NAME:\r\n admin\r\n", "NAME:\r\n\tadmin\r\n", "X-Odd: x\r\n NAME: admin\r\n",
			// A line that ends in an odd way, so that the header is part of another one's value, or not.
			"X-Odd: x\nNAME: admin\r\n", "X-Odd: x\rNAME: admin\r\n", "X-Odd: x\x00\r\nNAME: admin\r\n",
			// Control characters in the name and in the value, and no colon.
			"NAME\x00: admin\r\n", "NAME: ad\x00min\r\n", "NAME:\vadmin\r\n", "NAME admin\r\n",
		} {
			lines = append(lines, strings.ReplaceAll(template, "NAME", name))
		}
	}
	var out []attack
	for _, line := range lines {
		out = append(out, attack{name: nameAfter(line), bytes: getHead + line + "\r\n"})
	}
	for _, host := range []string{"", "example.com", "{host}/api", "a b", "admin@{host}"} {
		out = append(out, attack{name: "Host: " + host, bytes: strings.Replace(getHead, "{host}", host, 1) + "\r\n"})
	}
	out = append(out,
		attack{name: "bare line feeds", bytes: strings.ReplaceAll(getHead, "\r\n", "\n") + "\n"},
		attack{name: "bare line feed at the end", bytes: getHead + "\n"},
		attack{name: "bare carriage returns", bytes: "GET " + podsOfA + " HTTP/1.1\rHost: {host}\r\r"},
		attack{name: "no Host", bytes: strings.Replace(getHead, "Host: {host}\r\n", "", 1) + "\r\n"},
	)
	return withUsers([]string{reader}, out...)
}

// lengthAttacks say in a wrong or ambiguous way where the request ends. Behind that, each has the request smuggled: two servers
// that disagree on the end of the attack also disagree on whether smuggled is a request or part of a body.
func lengthAttacks() []attack {
	const chunked = "Transfer-Encoding: chunked\r\n"
	contentLength := func(n any) string { return fmt.Sprintf("Content-Length: %v\r\n", n) }
	var out []attack
	const wellFormed, malformed = false, true
	// add adds a GET and a POST. rest is the end of their headers and the body. malformedBody says that the body cannot be
	// read.
	add := func(rest string, malformedBody bool) {
		out = append(out,
			attack{name: nameAfter("GET " + rest), bytes: getHead + rest + smuggled, malformedBody: malformedBody},
			attack{name: nameAfter("POST" + rest), bytes: postHead + rest + smuggled, malformedBody: malformedBody},
		)
	}
	for _, framing := range []string{ // header lines before the body "0\r\n\r\n", the end of chunks
		// A Content-Length and chunks, and chunks twice.
		contentLength(4) + chunked, contentLength(len(smuggled)+5) + chunked, chunked + contentLength(5), contentLength(0) + chunked,
		chunked + chunked,
		// Several encodings, and unknown ones.
		"Transfer-Encoding: chunked, chunked\r\n", chunked + "Transfer-Encoding: identity\r\n",
		"Transfer-Encoding: identity\r\n" + contentLength(5), "Transfer-Encoding: cow\r\n", "Transfer-Encoding: gzip, chunked\r\n",
		// The word chunked in an odd spelling, and with odd characters before or around it.
		"Transfer-Encoding: CHUNKED\r\n", "Transfer-Encoding : chunked\r\n", "Transfer-Encoding:\tchunked\r\n",
		"Transfer-Encoding:\r\n chunked\r\n", "Transfer-Encoding: \vchunked\r\n" + contentLength(5),
		"Transfer-Encoding: \"chunked\"\r\n",
	} {
		add(framing+"\r\n0\r\n\r\n", wellFormed)
	}
	for _, chunks := range []string{
		// Extensions of a chunk that do not end as they should.
		"0;x=\"\r\n\r\n", "0;x\n\r\n",
		// Sizes that are no hexadecimal number, that are negative or too large, or that have a sign or a space.
		"0x0\r\n\r\n", "-1\r\n\r\n", "fffffffffffffffff\r\n\r\n", "+0\r\n\r\n", "0 \r\n\r\n",
		// Chunks without their line end, and longer than their size.
		"2\r\n{}0\r\n\r\n", "1\r\n{}\r\n0\r\n\r\n",
		// Bare line feeds, and a trailer that is no header.
		"0\n\n", "0\r\nnothing\r\n\r\n",
	} {
		add(chunked+"\r\n"+chunks, malformed)
	}
	// Headers behind the body (trailers). As ordinary headers they would change the user or the length.
	add(chunked+"Trailer: Impersonate-User\r\n\r\n0\r\nImpersonate-User: admin\r\n\r\n", wellFormed)
	add(chunked+"\r\n0\r\nAuthorization: Bearer x\r\nX-Remote-User: admin\r\n\r\n", wellFormed)
	add(chunked+"\r\n0\r\nContent-Length: 500\r\nTransfer-Encoding: chunked\r\n\r\n", wellFormed)
	for _, framing := range []string{ // header lines before an empty body
		// Chunks in a name that some servers take for Transfer-Encoding, and no encoding.
		"Transfer_Encoding: chunked\r\n" + contentLength(0), "Transfer-Encoding:\r\n" + contentLength(0),
		// Two lengths that differ.
		contentLength(0) + contentLength(len(smuggled)), contentLength(len(smuggled)) + contentLength(0), contentLength("0, 2"),
		// Lengths that are no number, or too large.
		contentLength(-1), contentLength("99999999999999999999"), contentLength(""), contentLength("1_0"),
		// A length in a name that some servers take for Content-Length.
		"Content-Length : 0\r\n", "Content_Length: 500\r\n",
		// smuggled as the body, and no body.
		contentLength(len(smuggled)), contentLength(0),
	} {
		add(framing+"\r\n", wellFormed)
	}
	for _, framing := range []string{ // header lines before the body "{}", with lengths that some parsers read as 2
		contentLength(2) + contentLength(2), contentLength("2, 2"), contentLength("+2"), contentLength("2 2"), contentLength("0x2"), contentLength("0002"),
	} {
		add(framing+"\r\n{}", wellFormed)
	}
	http10 := strings.Replace(getHead, "HTTP/1.1", "HTTP/1.0", 1) + chunked + "Connection: keep-alive\r\n"
	out = append(out, attack{name: "HTTP/1.0 with chunks", bytes: http10 + "\r\n0\r\n\r\n" + smuggled})
	return withUsers([]string{reader}, out...)
}

// connectionAttacks name other headers in Connection. A proxy must remove those from the request that it sends on, so an
// attacker could get rid of a header that matters. It would be worst for the user of a certificate: for this user listproxy
// sends its own credentials and Impersonate-User, and without Impersonate-User the user would have listproxy's rights.
func connectionAttacks() []attack {
	usersWithOneIdentity := []string{reader, anonymous, readerCert}
	allUsers := append(slices.Clone(usersWithOneIdentity), withToken(readerCert, admin))
	out := []attack{
		{target: podsOfA, header: "Connection: close", wantHitFor: podReaders},
		{target: podsOfA, header: "Connection: keep-alive\nKeep-Alive: timeout=1000", wantHitFor: podReaders},
		{target: podsOfA, header: "Proxy-Connection: Impersonate-User"},
		{target: podsOfA, header: "Expect: 100-continue"},
		{target: podsOfA, header: "Upgrade: websocket"},
		{target: pods, header: "Connection: keep-alive\nConnection: Impersonate-User\nImpersonate-User: nobody", verdict: refused},
	}
	// Headers whose removal would change the user.
	for _, name := range []string{
		"Authorization", "AUTHORIZATION", "Impersonate-User", "impersonate-user", "Impersonate-Group", "Impersonate-Uid",
		"Impersonate-Extra-Scopes", "Impersonate-Extra-Authentication.kubernetes.io%2fcredential-Id", "close, Impersonate-User",
		"keep-alive,authorization",
	} {
		connection := "Connection: " + name
		out = append(
			out,
			attack{target: pods, header: connection + "\nImpersonate-User: nobody", verdict: refused, users: allUsers},
			attack{target: podsOfA, header: connection, verdict: refused, users: allUsers},
			attack{target: podOfA, header: connection, verdict: refused, users: allUsers},
		)
	}
	// Headers whose removal does not change the user, and values that are no name of a header.
	for _, name := range []string{
		"X-Remote-User", "Host", "X-Forwarded-For", "close, X-Forwarded-For", "Accept", "Content-Length", "Connection",
		"Cache-Status", "x", "", "\"Authorization\"", "Authorization;x", "Auth orization", "*", ",,,", "Authorization_", "Te", "User-Agent",
	} {
		for _, target := range []string{podsOfA, podOfA} {
			header := "Connection: " + name + "\nX-Remote-User: admin"
			out = append(out, attack{target: target, header: header, users: usersWithOneIdentity})
		}
	}
	return withUsers([]string{reader, anonymous}, out...)
}
