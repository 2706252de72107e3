package attacks

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
)

// smuggled is a second request, by alice, behind an attack. Both servers must agree whether to answer it, which depends on
// where they believe that the attack ended. In the audit log it is found beside the attack.
const smuggled = "GET /api/v1/pods?smuggled=1 HTTP/1.1\r\nHost: {host}\r\nAudit-Id: {id}.smuggled\r\n" +
	"Authorization: Bearer {token:alice}\r\n\r\n"

// The first lines of a GET of a list in memory and of a POST. More headers may follow.
const (
	getHead  = "GET " + podsOfA + " HTTP/1.1\r\n" + headers
	postHead = "POST /api/v1/namespaces/team-a/pods HTTP/1.1\r\nContent-Type: application/json\r\n" + headers
	headers  = "Host: {host}\r\nUser-Agent: attacker\r\nAudit-Id: {id}.1\r\n{authorization}"
)

// http1Attacks returns the attacks that can only be written in HTTP/1.1, by chapter.
func http1Attacks() map[string][]attack {
	return map[string][]attack{
		"targets":    targetAttacks(),
		"lines":      lineAttacks(),
		"lengths":    lengthAttacks(),
		"connection": connectionAttacks(),
	}
}

// nameAfter returns the name of an attack that is called after its bytes.
func nameAfter(bytes string) string { return fmt.Sprintf("%.80q", bytes) }

// targetAttacks have something other than a path as their target, or odd bytes in the first line.
func targetAttacks() []attack {
	var out []attack
	add := func(v verdict, lines ...string) {
		for _, first := range lines {
			out = append(out, attack{name: nameAfter(first), bytes: first + "\r\n" + headers + "\r\n", verdict: v})
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
	for _, bytes := range []string{"GET " + podsOfA + "\r\n\r\n", "\x16\x03\x01\x00\x05hello\r\n\r\n", "\r\n\r\n\r\n\r\n"} {
		out = append(out, attack{name: nameAfter(bytes), bytes: bytes, verdict: answeredAsUpstream})
	}
	out = append(out, attack{name: "preface of HTTP/2", bytes: "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", verdict: refused})
	return withUsers(podReaders, out...)
}

// lineAttacks have odd bytes in header lines.
func lineAttacks() []attack {
	lines := []string{
		": admin\r\n", "Imperson@te-User: admin\r\n", "Imp\xc3\xa9rsonate-User: admin\r\n",
		"Imper\u017fonate-User: admin\r\n", "Host: example.com\r\n",
	}
	for _, name := range []string{"Impersonate-User", "X-Remote-User", "Authorization", "Transfer-Encoding"} {
		for _, lie := range []string{
			"NAME : admin\r\n", "NAME\t: admin\r\n", " NAME: admin\r\n", "NAME:\r\n admin\r\n", "NAME:\r\n\tadmin\r\n",
			"X-Odd: x\r\n NAME: admin\r\n", "X-Odd: x\nNAME: admin\r\n", "X-Odd: x\rNAME: admin\r\n", "X-Odd: x\x00\r\nNAME: admin\r\n",
			"NAME\x00: admin\r\n", "NAME: ad\x00min\r\n", "NAME:\vadmin\r\n", "NAME admin\r\n",
		} {
			lines = append(lines, strings.ReplaceAll(lie, "NAME", name))
		}
	}
	var out []attack
	for _, odd := range lines {
		out = append(out, attack{name: nameAfter(odd), bytes: getHead + odd + "\r\n"})
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
	addAs := func(rest string, isMalformed bool) {
		out = append(out,
			attack{name: "GET " + nameAfter(rest), bytes: getHead + rest + smuggled, malformedBody: isMalformed},
			attack{name: "POST " + nameAfter(rest), bytes: postHead + rest + smuggled, malformedBody: isMalformed})
	}
	add := func(rest string) { addAs(rest, false) }
	addMalformedBody := func(rest string) { addAs(rest, true) }
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
		add(framing + "\r\n0\r\n\r\n")
	}
	for _, chunks := range []string{ // sizes, extensions and ends that are malformed, or that some parsers accept
		"0;x=\"\r\n\r\n", "0;x\n\r\n", "0x0\r\n\r\n", "-1\r\n\r\n", "fffffffffffffffff\r\n\r\n", "+0\r\n\r\n",
		"0 \r\n\r\n", "2\r\n{}0\r\n\r\n",
		"1\r\n{}\r\n0\r\n\r\n", "0\n\n", "0\r\nnothing\r\n\r\n",
	} {
		addMalformedBody(chunked + "\r\n" + chunks)
	}
	// Trailers that would change the user, or the length.
	add(chunked + "Trailer: Impersonate-User\r\n\r\n0\r\nImpersonate-User: admin\r\n\r\n")
	add(chunked + "\r\n0\r\nAuthorization: Bearer x\r\nX-Remote-User: admin\r\n\r\n")
	add(chunked + "\r\n0\r\nContent-Length: 500\r\nTransfer-Encoding: chunked\r\n\r\n")
	for _, framing := range []string{ // lengths that are wrong, twice, malformed, or in a name that some servers take for the header
		"Transfer_Encoding: chunked\r\n" + length(0), "Transfer-Encoding:\r\n" + length(0), length(0) + length(len(smuggled)),
		length(len(smuggled)) + length(0), length("0, 2"), length(-1), length("99999999999999999999"), length(""), length("1_0"),
		"Content-Length : 0\r\n", "Content_Length: 500\r\n", length(len(smuggled)), length(0),
	} {
		add(framing + "\r\n")
	}
	for _, framing := range []string{ // what some parsers read as 2
		length(2) + length(2), length("2, 2"), length("+2"), length("2 2"), length("0x2"), length("0002"),
	} {
		add(framing + "\r\n{}")
	}
	http10 := strings.Replace(getHead, "HTTP/1.1", "HTTP/1.0", 1) + chunked + "Connection: keep-alive\r\n"
	out = append(out, attack{name: "HTTP/1.0 with chunks", bytes: http10 + "\r\n0\r\n\r\n" + smuggled})
	return withUsers([]string{reader}, out...)
}

// webSocket are the headers that ask for an upgrade to WebSocket.
var webSocket = []string{
	"Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13", "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
}

// connectionAttacks try to have headers removed on the way by naming them in Connection, or to change the protocol of the
// connection. With a certificate, success would be worst: listproxy sends its own credentials and Impersonate-User.
func connectionAttacks() []attack {
	const execOfNone = "/api/v1/namespaces/team-a/pods/none/exec?command=x"
	withOneIdentity := []string{reader, anonymous, readerCert}
	all := append(slices.Clone(withOneIdentity), withToken(readerCert, admin))
	var out []attack
	// Headers whose removal would change the user.
	for _, name := range []string{
		"Authorization", "AUTHORIZATION", "Impersonate-User", "impersonate-user", "Impersonate-Group", "Impersonate-Uid",
		"Impersonate-Extra-Scopes", "Impersonate-Extra-Authentication.kubernetes.io%2fcredential-Id", "close, Impersonate-User",
		"keep-alive,authorization",
	} {
		out = append(out, attack{
			name: "names " + name, target: pods, header: []string{"Connection: " + name, "Impersonate-User: nobody"},
			verdict: refused, users: all,
		})
		for _, target := range []string{podsOfA, podOfA} {
			out = append(out, attack{
				name: "names " + name + ", which is not there, of " + target, target: target,
				header: []string{"Connection: " + name}, verdict: refused, users: all,
			})
		}
	}
	// Headers whose removal changes nothing, and what is no name of a header.
	for _, name := range []string{
		"X-Remote-User", "Host", "X-Forwarded-For", "close, X-Forwarded-For", "Accept", "Content-Length", "Connection",
		"Cache-Status", "x", "", "\"Authorization\"", "Authorization;x", "Auth orization", "*", ",,,", "Authorization_", "Te", "User-Agent",
	} {
		for _, target := range []string{podsOfA, podOfA} {
			out = append(out, attack{
				name: fmt.Sprintf("names %q of %s", name, target), target: target,
				header: []string{"Connection: " + name, "X-Remote-User: admin"}, users: withOneIdentity,
			})
		}
	}
	add := func(wantHitFor []string, lines ...string) {
		out = append(out, attack{
			name: strings.Join(lines, ", "), target: podsOfA, header: lines, wantHitFor: wantHitFor,
		})
	}
	add(podReaders, "Connection: close")
	add(podReaders, "Connection: keep-alive", "Keep-Alive: timeout=1000")
	add(nil, "Proxy-Connection: Impersonate-User")
	add(nil, "Upgrade: websocket")
	add(nil, "Expect: 100-continue")
	out = append(out, attack{
		name: "upgrade, and a request behind", mayClose: true,
		bytes: strings.Replace(getHead, podsOfA, execOfNone, 1) + "Connection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\r\n" + smuggled,
	}, attack{
		name: "two Connections", target: pods, verdict: refused,
		header: []string{"Connection: keep-alive", "Connection: Impersonate-User", "Impersonate-User: nobody"},
	})
	return withUsers([]string{reader, anonymous}, slices.Concat(out, upgradeAttacks(), tokensAsSubprotocol())...)
}

// webSocketOf returns the headers that ask for an upgrade to WebSocket with a subprotocol.
func webSocketOf(protocol string) []string {
	return append(slices.Clone(webSocket), "Sec-WebSocket-Protocol: "+protocol)
}

// upgradeAttacks ask for upgrades to protocols of kube-apiserver and to others.
func upgradeAttacks() []attack {
	tokens := []string{reader, anonymous}
	certificates := []string{readerCert, adminCert, memberCert, accountCert}
	const (
		exec  = podOfA + "/exec?command=x&stdout=1"
		watch = podsOfA + "&watch=1&timeoutSeconds=1"
	)
	var out []attack
	add := func(users []string, a attack) {
		a.name = strings.Join(a.header, ", ") + " of " + a.method + " " + a.target
		a.users, a.mayClose = users, true
		out = append(out, a)
	}
	spdy := []string{"Connection: Upgrade", "Upgrade: SPDY/3.1"}
	for _, a := range []attack{
		{target: podsOfA, header: spdy},
		{target: podsOfA, header: webSocket},
		{target: podsOfA, header: webSocketOf("x")},
		{target: podsOfA, header: []string{"Connection: upgrade"}},
		{target: podsOfA, header: []string{"Connection: Upgrade", "Upgrade: "}},
		{target: pods, header: webSocketOf(bearerProtocol + "eA, base64.binary.k8s.io")},
		{target: podsOfA, method: http.MethodPost, header: spdy},
		{target: exec, method: http.MethodPost, header: spdy},
		{target: exec, header: spdy},
		{target: exec, header: webSocketOf("v5.channel.k8s.io")},
		{target: watch, header: webSocketOf("binary.k8s.io")},
	} {
		add(slices.Concat(tokens, certificates), a)
	}
	// In another protocol than kube-apiserver's, a user of a certificate could use listproxy's own credentials.
	for _, header := range [][]string{
		{"Connection: Upgrade", "Upgrade: TLS/1.0"},
		{"Connection: Upgrade", "Upgrade: x"},
		{"Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA"},
	} {
		for _, target := range []string{podsOfA, watch} {
			add(tokens, attack{target: target, header: header})
			add(certificates, attack{target: target, header: header, verdict: refused, wantStatus: http.StatusBadRequest})
		}
	}
	return append(out, attack{
		name: "upgrade and impersonation", target: exec, users: certificates,
		header:  append(webSocketOf("x"), "Impersonate-User: alice"),
		verdict: refused, wantStatus: http.StatusForbidden,
	})
}

// tokensAsSubprotocol have a token as a subprotocol of WebSocket, which kube-apiserver reads if there is no Authorization.
func tokensAsSubprotocol() []attack {
	var out []attack
	for _, user := range []string{anonymous, stranger, readerCert, expiredCert, foreignCert, withToken(expiredCert, stranger)} {
		for protocols, hasToken := range map[string]bool{
			"{bearer:alice}, v4.channel.k8s.io":           true,
			"v4.channel.k8s.io, {bearer:admin}":           true,
			"{bearer:stranger}, v4.channel.k8s.io":        true,
			"{bearer:alice}, {bearer:admin}, x":           false,
			"{bearer:admin}":                              false,
			bearerProtocol + "!, x":                       false,
			bearerProtocol + ", x":                        false,
			"BASE64URL.BEARER.AUTHORIZATION.K8S.IO.eA, x": false,
			"x, y": false,
		} {
			verdict := answeredAsUpstream
			if !hasToken && (user == expiredCert || user == foreignCert) {
				verdict = refusedAlike
			}
			for _, target := range []string{podsOfA, pods, podsOfA + "&watch=1&timeoutSeconds=1"} {
				out = append(out, attack{
					name: protocols + ", " + target, target: target, header: webSocketOf(protocols), users: []string{user},
					verdict: verdict, mayClose: true,
				})
			}
		}
	}
	return out
}
