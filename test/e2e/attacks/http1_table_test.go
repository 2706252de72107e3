package attacks

import (
	"fmt"
	"slices"
	"strings"
)

// The type attack explains placeholders such as {host}.

// smuggled is a second request, by alice, behind an attack. Both servers must agree whether to answer it, which depends on
// where they believe that the attack ended. In the audit log it is found beside the attack.
const smuggled = "GET /api/v1/pods?smuggled=1 HTTP/1.1\r\nHost: {host}\r\nAudit-Id: {id}.smuggled\r\n" +
	"Authorization: Bearer {token:alice}\r\n\r\n"

// attackerHeaders are the headers of every attack.
const attackerHeaders = "Host: {host}\r\nUser-Agent: attacker\r\nAudit-Id: {id}.1\r\n{authorization}"

// The beginnings of a GET of a list in memory, and of a POST. More headers may follow.
const (
	getHead  = "GET " + podsOfA + " HTTP/1.1\r\n" + attackerHeaders
	postHead = "POST /api/v1/namespaces/team-a/pods HTTP/1.1\r\nContent-Type: application/json\r\n" + attackerHeaders
)

// nameAfter returns a name with the first bytes of a text.
func nameAfter(text string) string { return fmt.Sprintf("%.80q", text) }

// targetAttacks have something other than a path as their target, or odd bytes in the first line.
func targetAttacks() []attack {
	out := []attack{
		{bytes: "GET " + podsOfA + "\r\n\r\n"},
		{bytes: "\x16\x03\x01\x00\x05hello\r\n\r\n"},
		{bytes: "\r\n\r\n\r\n\r\n"},
		{name: "preface of HTTP/2", bytes: "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", verdict: refused},
	}
	add := func(v verdict, firstLines ...string) {
		for _, line := range firstLines {
			out = append(out, attack{bytes: line + "\r\n" + attackerHeaders + "\r\n", verdict: v})
		}
	}
	add(
		refused,
		// Absolute URLs and other forms of a target, and CONNECT.
		"GET https://{host}"+podsOfA+" HTTP/1.1", "GET http://{host}"+podsOfA+" HTTP/1.1",
		"GET https://example.com"+podsOfA+" HTTP/1.1", "GET https://admin@{host}"+podsOfA+" HTTP/1.1",
		"GET file:///etc/passwd HTTP/1.1", "GET {host} HTTP/1.1", "GET * HTTP/1.1",
		"CONNECT {host} HTTP/1.1", "CONNECT 169.254.169.254:80 HTTP/1.1", "CONNECT "+podsOfA+" HTTP/1.1",
	)
	add(
		answeredAsUpstream,
		// A target that is not a path, or none; spaces; odd bytes; other versions; odd methods.
		"OPTIONS * HTTP/1.1", "GET api/v1/pods HTTP/1.1", "GET HTTP/1.1",
		"GET "+podsOfA+" /version HTTP/1.1", "GET  "+podsOfA+" HTTP/1.1",
		"GET\t"+podsOfA+"\tHTTP/1.1", " GET "+podsOfA+" HTTP/1.1", "\r\nGET "+podsOfA+" HTTP/1.1", "GET /api/v1/pods\x00 HTTP/1.1",
		"GET /api/v1/pods\r HTTP/1.1", "GET /api/v1/pods\x7f HTTP/1.1", "GET "+podsOfA+"#x HTTP/1.1", "GET "+podsOfA+" HTTP/1.0",
		"GET "+podsOfA+" HTTP/1.2", "GET "+podsOfA+" HTTP/2.0", "GET "+podsOfA+" HTTP/3.0", "GET "+podsOfA+" http/1.1",
		"GE(T "+podsOfA+" HTTP/1.1", podsOfA+" HTTP/1.1",
	)
	return withUsers(podReaders, out...)
}

// lineAttacks have odd bytes in header lines.
func lineAttacks() []attack {
	lines := []string{
		": admin\r\n", "Imperson@te-User: admin\r\n", "Imp\xc3\xa9rsonate-User: admin\r\n",
		"Imper\u017fonate-User: admin\r\n", "Host: example.com\r\n",
	}
	for _, name := range []string{"Impersonate-User", "X-Remote-User", "Authorization", "Transfer-Encoding"} {
		for _, template := range []string{
			"NAME : admin\r\n", "NAME\t: admin\r\n", " NAME: admin\r\n", "NAME:\r\n admin\r\n", "NAME:\r\n\tadmin\r\n",
			"X-Odd: x\r\n NAME: admin\r\n", "X-Odd: x\nNAME: admin\r\n", "X-Odd: x\rNAME: admin\r\n", "X-Odd: x\x00\r\nNAME: admin\r\n",
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

// lengthAttacks say in a wrong or ambiguous way where the request ends, and have a smuggled request behind.
func lengthAttacks() []attack {
	const chunked = "Transfer-Encoding: chunked\r\n"
	length := func(n any) string { return fmt.Sprintf("Content-Length: %v\r\n", n) }
	var out []attack
	const wellFormed, malformed = false, true
	// add adds a GET and a POST whose headers and body end with rest. malformedBody says that the body cannot be read.
	add := func(rest string, malformedBody bool) {
		out = append(out,
			attack{name: nameAfter("GET " + rest), bytes: getHead + rest + smuggled, malformedBody: malformedBody},
			attack{name: nameAfter("POST" + rest), bytes: postHead + rest + smuggled, malformedBody: malformedBody},
		)
	}
	for _, framing := range []string{
		// A length and chunks, or chunks twice.
		length(4) + chunked, length(len(smuggled)+5) + chunked, chunked + length(5), length(0) + chunked, chunked + chunked,
		// Other encodings, and chunked in an odd spelling.
		"Transfer-Encoding: chunked, chunked\r\n", chunked + "Transfer-Encoding: identity\r\n",
		"Transfer-Encoding: identity\r\n" + length(5), "Transfer-Encoding: cow\r\n", "Transfer-Encoding: gzip, chunked\r\n",
		"Transfer-Encoding: CHUNKED\r\n", "Transfer-Encoding : chunked\r\n", "Transfer-Encoding:\tchunked\r\n",
		"Transfer-Encoding:\r\n chunked\r\n", "Transfer-Encoding: \vchunked\r\n" + length(5),
		"Transfer-Encoding: \"chunked\"\r\n",
	} {
		add(framing+"\r\n0\r\n\r\n", wellFormed)
	}
	for _, chunks := range []string{ // sizes, extensions and ends that are malformed, or that some parsers accept
		"0;x=\"\r\n\r\n", "0;x\n\r\n", "0x0\r\n\r\n", "-1\r\n\r\n", "fffffffffffffffff\r\n\r\n", "+0\r\n\r\n",
		"0 \r\n\r\n", "2\r\n{}0\r\n\r\n",
		"1\r\n{}\r\n0\r\n\r\n", "0\n\n", "0\r\nnothing\r\n\r\n",
	} {
		add(chunked+"\r\n"+chunks, malformed)
	}
	// Trailers that would change the user, or the length.
	add(chunked+"Trailer: Impersonate-User\r\n\r\n0\r\nImpersonate-User: admin\r\n\r\n", wellFormed)
	add(chunked+"\r\n0\r\nAuthorization: Bearer x\r\nX-Remote-User: admin\r\n\r\n", wellFormed)
	add(chunked+"\r\n0\r\nContent-Length: 500\r\nTransfer-Encoding: chunked\r\n\r\n", wellFormed)
	for _, framing := range []string{ // lengths that are wrong, twice, malformed, or in a name that some servers take for the header
		"Transfer_Encoding: chunked\r\n" + length(0), "Transfer-Encoding:\r\n" + length(0), length(0) + length(len(smuggled)),
		length(len(smuggled)) + length(0), length("0, 2"), length(-1), length("99999999999999999999"), length(""), length("1_0"),
		"Content-Length : 0\r\n", "Content_Length: 500\r\n", length(len(smuggled)), length(0),
	} {
		add(framing+"\r\n", wellFormed)
	}
	for _, framing := range []string{ // what some parsers read as 2
		length(2) + length(2), length("2, 2"), length("+2"), length("2 2"), length("0x2"), length("0002"),
	} {
		add(framing+"\r\n{}", wellFormed)
	}
	http10 := strings.Replace(getHead, "HTTP/1.1", "HTTP/1.0", 1) + chunked + "Connection: keep-alive\r\n"
	out = append(out, attack{name: "HTTP/1.0 with chunks", bytes: http10 + "\r\n0\r\n\r\n" + smuggled})
	return withUsers([]string{reader}, out...)
}

// connectionAttacks try to have headers removed on the way by naming them in Connection. With a certificate, success would be
// worst: listproxy sends its own credentials and Impersonate-User.
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
	// Headers whose removal changes nothing, and what is no name of a header.
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
