package attacks

import (
	"fmt"
	"strings"
)

// smuggled is a request that must never be answered. Who has rights would show that it was: the
// attacks that hold it come from somebody without.
const smuggled = "GET /api/v1/pods?smuggled=1 HTTP/1.1\r\nHost: {host}\r\nAudit-Id: {id}.smuggled\r\nAuthorization: Bearer {token:alice}\r\n\r\n"

// line is the beginning of a request for a list that is in memory.
const (
	line = "GET " + podsOfA + " HTTP/1.1\r\nHost: {host}\r\nUser-Agent: attacker\r\nAudit-Id: {id}.1\r\n{authorization}"
	post = "POST /api/v1/namespaces/team-a/pods HTTP/1.1\r\nHost: {host}\r\nUser-Agent: attacker\r\nAudit-Id: {id}.1\r\nContent-Type: application/json\r\n{authorization}"
)

// http1Attacks can only be said in HTTP/1.1.
func http1Attacks() map[string][]attack {
	return map[string][]attack{
		"targets":    targetAttacks(),
		"lines":      lineAttacks(),
		"lengths":    lengthAttacks(),
		"connection": connectionAttacks(),
	}
}

// targetAttacks ask for something other than a path, or have odd bytes in the first line.
func targetAttacks() []attack {
	first := func(first string) string {
		return first + "\r\nHost: {host}\r\nUser-Agent: attacker\r\nAudit-Id: {id}.1\r\n{authorization}\r\n"
	}
	return by(podReaders,
		attack{name: "absolute form", bytes: first("GET https://{host}" + podsOfA + " HTTP/1.1"), want: refused},
		attack{name: "absolute form, plain", bytes: first("GET http://{host}" + podsOfA + " HTTP/1.1"), want: refused},
		attack{name: "absolute form, another host", bytes: first("GET https://example.com" + podsOfA + " HTTP/1.1"), want: refused},
		attack{name: "absolute form, a user", bytes: first("GET https://admin@{host}" + podsOfA + " HTTP/1.1"), want: refused},
		attack{name: "absolute form, a file", bytes: first("GET file:///etc/passwd HTTP/1.1"), want: refused},
		attack{name: "authority form", bytes: first("GET {host} HTTP/1.1"), want: refused},
		attack{name: "asterisk", bytes: first("GET * HTTP/1.1"), want: refused},
		attack{name: "OPTIONS asterisk", bytes: first("OPTIONS * HTTP/1.1")},
		attack{name: "CONNECT upstream", bytes: first("CONNECT {host} HTTP/1.1"), want: refused},
		attack{name: "CONNECT elsewhere", bytes: first("CONNECT 169.254.169.254:80 HTTP/1.1"), want: refused},
		attack{name: "CONNECT a path", bytes: first("CONNECT " + podsOfA + " HTTP/1.1"), want: refused},
		attack{name: "no slash", bytes: first("GET api/v1/pods HTTP/1.1")},
		attack{name: "no target", bytes: first("GET HTTP/1.1")},
		attack{name: "two targets", bytes: first("GET " + podsOfA + " /version HTTP/1.1")},
		attack{name: "two spaces", bytes: first("GET  " + podsOfA + " HTTP/1.1")},
		attack{name: "tabs", bytes: first("GET\t" + podsOfA + "\tHTTP/1.1")},
		attack{name: "space before", bytes: first(" GET " + podsOfA + " HTTP/1.1")},
		attack{name: "empty line before", bytes: first("\r\nGET " + podsOfA + " HTTP/1.1")},
		attack{name: "raw NUL", bytes: first("GET /api/v1/pods\x00 HTTP/1.1")},
		attack{name: "raw carriage return", bytes: first("GET /api/v1/pods\r HTTP/1.1")},
		attack{name: "raw delete", bytes: first("GET /api/v1/pods\x7f HTTP/1.1")},
		attack{name: "fragment", bytes: first("GET " + podsOfA + "#x HTTP/1.1")},
		attack{name: "HTTP/1.0", bytes: first("GET " + podsOfA + " HTTP/1.0")},
		attack{name: "HTTP/0.9", bytes: "GET " + podsOfA + "\r\n\r\n"},
		attack{name: "HTTP/1.2", bytes: first("GET " + podsOfA + " HTTP/1.2")},
		attack{name: "HTTP/2.0", bytes: first("GET " + podsOfA + " HTTP/2.0")},
		attack{name: "HTTP/3.0", bytes: first("GET " + podsOfA + " HTTP/3.0")},
		attack{name: "lower-case version", bytes: first("GET " + podsOfA + " http/1.1")},
		attack{name: "preface of HTTP/2", bytes: "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", want: refused},
		attack{name: "method of odd bytes", bytes: first("GE(T " + podsOfA + " HTTP/1.1")},
		attack{name: "no method", bytes: first(podsOfA + " HTTP/1.1")},
		attack{name: "not HTTP", bytes: "\x16\x03\x01\x00\x05hello\r\n\r\n"},
		attack{name: "nothing but lines", bytes: "\r\n\r\n\r\n\r\n"},
	)
}

// lineAttacks have odd bytes in header lines.
func lineAttacks() []attack {
	var out []attack
	add := func(name, lines string) {
		out = append(out, attack{name: name, bytes: line + lines + "\r\n"})
	}
	for _, name := range []string{"Impersonate-User", "X-Remote-User", "Authorization", "Transfer-Encoding"} {
		add(name+" with a space before the colon", name+" : admin\r\n")
		add(name+" with a tab before the colon", name+"\t: admin\r\n")
		add(name+" with a space before", " "+name+": admin\r\n")
		add(name+" folded", name+":\r\n admin\r\n")
		add(name+" folded by a tab", name+":\r\n\tadmin\r\n")
		add(name+" in the fold of another", "X-Odd: x\r\n "+name+": admin\r\n")
		add(name+" behind a bare line feed", "X-Odd: x\n"+name+": admin\r\n")
		add(name+" behind a bare carriage return", "X-Odd: x\r"+name+": admin\r\n")
		add(name+" behind a NUL", "X-Odd: x\x00\r\n"+name+": admin\r\n")
		add(name+" with a NUL in the name", name+"\x00: admin\r\n")
		add(name+" with a NUL in the value", name+": ad\x00min\r\n")
		add(name+" with a vertical tab", name+":\vadmin\r\n")
		add(name+" without a colon", name+" admin\r\n")
	}
	add("no name", ": admin\r\n")
	add("name of odd bytes", "Imperson@te-User: admin\r\n")
	add("name not ASCII", "Imp\xc3\xa9rsonate-User: admin\r\n")
	add("long s", "Imper\u017fonate-User: admin\r\n")
	out = append(out,
		attack{name: "bare line feeds", bytes: strings.ReplaceAll(line, "\r\n", "\n") + "\n"},
		attack{name: "bare line feed at the end", bytes: line + "\n"},
		attack{name: "bare carriage returns", bytes: "GET " + podsOfA + " HTTP/1.1\rHost: {host}\r\r"},
		attack{name: "no Host", bytes: "GET " + podsOfA + " HTTP/1.1\r\nAudit-Id: {id}.1\r\n{authorization}\r\n"},
		attack{name: "two Hosts", bytes: line + "Host: example.com\r\n\r\n"},
		attack{name: "empty Host", bytes: strings.Replace(line, "{host}", "", 1) + "\r\n", elsewhere: true},
		attack{name: "another Host", bytes: strings.Replace(line, "{host}", "example.com", 1) + "\r\n", elsewhere: true},
		attack{name: "Host with a path", bytes: strings.Replace(line, "{host}", "{host}/api", 1) + "\r\n"},
		attack{name: "Host with odd bytes", bytes: strings.Replace(line, "{host}", "a b", 1) + "\r\n"},
		attack{name: "Host with a user", bytes: strings.Replace(line, "{host}", "admin@{host}", 1) + "\r\n"},
	)
	return by([]string{reader}, out...)
}

// lengthAttacks lie about where a request ends.
func lengthAttacks() []attack {
	const chunked = "Transfer-Encoding: chunked\r\n"
	length := func(n any) string { return fmt.Sprintf("Content-Length: %v\r\n", n) }
	var out []attack
	for _, begin := range []struct{ name, line string }{{"GET", line}, {"POST", post}} {
		for name, rest := range map[string]string{
			"length and chunks":                length(4) + chunked + "\r\n0\r\n\r\n" + smuggled,
			"length and chunks, all of it":     length(len(smuggled)+5) + chunked + "\r\n0\r\n\r\n" + smuggled,
			"chunks and length":                chunked + length(5) + "\r\n0\r\n\r\n" + smuggled,
			"zero length and chunks":           length(0) + chunked + "\r\n0\r\n\r\n" + smuggled,
			"chunks twice":                     chunked + chunked + "\r\n0\r\n\r\n" + smuggled,
			"chunks twice in one":              "Transfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n" + smuggled,
			"chunks and identity":              chunked + "Transfer-Encoding: identity\r\n\r\n0\r\n\r\n" + smuggled,
			"identity":                         "Transfer-Encoding: identity\r\n" + length(5) + "\r\n0\r\n\r\n" + smuggled,
			"unknown coding":                   "Transfer-Encoding: cow\r\n\r\n0\r\n\r\n" + smuggled,
			"gzip and chunks":                  "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n" + smuggled,
			"chunks in upper case":             "Transfer-Encoding: CHUNKED\r\n\r\n0\r\n\r\n" + smuggled,
			"chunks, a space before":           "Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n" + smuggled,
			"chunks, a tab":                    "Transfer-Encoding:\tchunked\r\n\r\n0\r\n\r\n" + smuggled,
			"chunks, folded":                   "Transfer-Encoding:\r\n chunked\r\n\r\n0\r\n\r\n" + smuggled,
			"chunks, a vertical tab":           "Transfer-Encoding: \vchunked\r\n" + length(5) + "\r\n0\r\n\r\n" + smuggled,
			"chunks, quoted":                   "Transfer-Encoding: \"chunked\"\r\n\r\n0\r\n\r\n" + smuggled,
			"chunks, another name":             "Transfer_Encoding: chunked\r\n" + length(0) + "\r\n" + smuggled,
			"chunks, nothing":                  "Transfer-Encoding:\r\n" + length(0) + "\r\n" + smuggled,
			"chunk extension":                  chunked + "\r\n0;x=\"\r\n\r\n" + smuggled,
			"chunk extension, bare line feed":  chunked + "\r\n0;x\n\r\n" + smuggled,
			"chunk of odd length":              chunked + "\r\n0x0\r\n\r\n" + smuggled,
			"chunk of negative length":         chunked + "\r\n-1\r\n\r\n" + smuggled,
			"chunk of huge length":             chunked + "\r\nfffffffffffffffff\r\n\r\n" + smuggled,
			"chunk with a plus":                chunked + "\r\n+0\r\n\r\n" + smuggled,
			"chunk with a space":               chunked + "\r\n0 \r\n\r\n" + smuggled,
			"chunk without an end":             chunked + "\r\n2\r\n{}0\r\n\r\n" + smuggled,
			"chunk too long by one":            chunked + "\r\n1\r\n{}\r\n0\r\n\r\n" + smuggled,
			"chunks ended by bare line feeds":  chunked + "\r\n0\n\n" + smuggled,
			"trailer with an identity":         chunked + "Trailer: Impersonate-User\r\n\r\n0\r\nImpersonate-User: admin\r\n\r\n" + smuggled,
			"trailer with an unannounced":      chunked + "\r\n0\r\nAuthorization: Bearer x\r\nX-Remote-User: admin\r\n\r\n" + smuggled,
			"trailer with a length":            chunked + "\r\n0\r\nContent-Length: 500\r\nTransfer-Encoding: chunked\r\n\r\n" + smuggled,
			"trailer malformed":                chunked + "\r\n0\r\nnothing\r\n\r\n" + smuggled,
			"two lengths":                      length(0) + length(len(smuggled)) + "\r\n" + smuggled,
			"two lengths, the other way":       length(len(smuggled)) + length(0) + "\r\n" + smuggled,
			"two lengths, the same":            length(2) + length(2) + "\r\n{}" + smuggled,
			"two lengths in one":               "Content-Length: 0, 2\r\n\r\n" + smuggled,
			"the same length in one":           "Content-Length: 2, 2\r\n\r\n{}" + smuggled,
			"length negative":                  length(-1) + "\r\n" + smuggled,
			"length with a plus":               length("+2") + "\r\n{}" + smuggled,
			"length with a space":              length("2 2") + "\r\n{}" + smuggled,
			"length in hexadecimal":            length("0x2") + "\r\n{}" + smuggled,
			"length with zeros before":         length("0002") + "\r\n{}" + smuggled,
			"length huge":                      length("99999999999999999999") + "\r\n" + smuggled,
			"length empty":                     length("") + "\r\n" + smuggled,
			"length with an underscore":        length("1_0") + "\r\n" + smuggled,
			"length with a space before colon": "Content-Length : 0\r\n\r\n" + smuggled,
			"length named with an underscore":  "Content_Length: 500\r\n\r\n" + smuggled,
			"length of the follower":           length(len(smuggled)) + "\r\n" + smuggled,
			"pipelined":                        length(0) + "\r\n" + smuggled,
		} {
			malformed := strings.HasPrefix(name, "chunk ") || name == "chunks ended by bare line feeds" || name == "trailer malformed"
			out = append(out, attack{name: begin.name + ", " + name, bytes: begin.line + rest, unread: malformed})
		}
	}
	out = append(out,
		attack{name: "HTTP/1.0 with chunks", bytes: strings.Replace(line, "HTTP/1.1", "HTTP/1.0", 1) + chunked + "Connection: keep-alive\r\n\r\n0\r\n\r\n" + smuggled},
		attack{name: "GET, length longer than all", bytes: line + length(100_000) + "\r\n", unanswered: true},
	)
	return by([]string{reader}, out...)
}

// connectionAttacks are about who hears which header, and about what the connection becomes.
func connectionAttacks() []attack {
	var out []attack
	for _, name := range []string{
		"Authorization", "authorization", "Impersonate-User", "impersonate-user", "Impersonate-Group", "Impersonate-Uid",
		"Impersonate-Extra-Scopes", "close, Impersonate-User", "keep-alive,authorization",
	} {
		out = append(out,
			attack{name: "names " + name, target: pods, header: []string{"Connection: " + name, "Impersonate-User: nobody"}, want: refused},
			attack{name: "names " + name + ", which is not there", target: podsOfA, header: []string{"Connection: " + name}, want: refused})
	}
	for _, name := range []string{
		"X-Remote-User", "Host", "X-Forwarded-For", "Accept", "Content-Length", "Connection", "Cache-Status", "x", "",
		"\"Authorization\"", "Authorization;x", "Auth orization", "*", ",,,", "Authorization_", "Te", "User-Agent",
	} {
		out = append(out, attack{name: fmt.Sprintf("names %q", name), target: podsOfA, header: []string{"Connection: " + name, "X-Remote-User: admin"}})
	}
	upgrade := func(protocol string) []string { return []string{"Connection: Upgrade", "Upgrade: " + protocol} }
	out = append(out,
		attack{name: "two Connections", target: pods, header: []string{"Connection: keep-alive", "Connection: Impersonate-User", "Impersonate-User: nobody"}, want: refused},
		attack{name: "Connection: close", target: podsOfA, header: []string{"Connection: close"}, hit: podReaders},
		attack{name: "Keep-Alive", target: podsOfA, header: []string{"Connection: keep-alive", "Keep-Alive: timeout=1000"}, hit: podReaders},
		attack{name: "Proxy-Connection", target: podsOfA, header: []string{"Proxy-Connection: Impersonate-User"}},
		attack{name: "upgrade to websocket", target: podsOfA, header: append(upgrade("websocket"), "Sec-WebSocket-Version: 13", "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ=="), closes: true},
		attack{name: "upgrade to websocket, a token", target: pods, header: append(upgrade("websocket"), "Sec-WebSocket-Version: 13", "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
			"Sec-WebSocket-Protocol: base64url.bearer.authorization.k8s.io.eA, base64.binary.k8s.io"), closes: true},
		attack{name: "upgrade to SPDY", target: podsOfA, header: upgrade("SPDY/3.1"), closes: true},
		attack{name: "upgrade to h2c", target: podsOfA, header: []string{"Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA"}, closes: true},
		attack{name: "upgrade to TLS", target: podsOfA, header: upgrade("TLS/1.0"), closes: true},
		attack{name: "upgrade to something", target: podsOfA, header: upgrade("x"), closes: true},
		attack{name: "upgrade to nothing", target: podsOfA, header: upgrade(""), closes: true},
		attack{name: "upgrade of a POST", method: "POST", target: podsOfA, header: upgrade("SPDY/3.1"), closes: true},
		attack{name: "upgrade of exec on nothing", target: "/api/v1/namespaces/team-a/pods/none/exec?command=x", header: upgrade("SPDY/3.1"), closes: true},
		attack{name: "upgrade of exec, a request behind", bytes: "GET /api/v1/namespaces/team-a/pods/none/exec?command=x HTTP/1.1\r\nHost: {host}\r\nAudit-Id: {id}.1\r\n" +
			"{authorization}Connection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\r\n" + smuggled, closes: true},
		attack{name: "upgrade without Connection", target: podsOfA, header: []string{"Upgrade: websocket"}},
		attack{name: "Connection: upgrade alone", target: podsOfA, header: []string{"Connection: upgrade"}, closes: true},
		attack{name: "upgrade of a watch", target: podsOfA + "&watch=1&timeoutSeconds=1", header: upgrade("x"), closes: true},
		attack{name: "expect 100-continue", target: podsOfA, header: []string{"Expect: 100-continue"}},
	)
	return by([]string{reader, anonymous}, out...)
}
