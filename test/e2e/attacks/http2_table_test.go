package attacks

import (
	"slices"
	"strings"
)

// The tables of this file have fields of HTTP/2 as they are encoded, for example ":path=*". Placeholders such as {host} are
// replaced before (see the type attack).

// oneRequest returns the frames of a request that has only a header block, and no body.
func oneRequest(block ...field) func(*wire) {
	return func(w *wire) { w.writeHeaders(attackStream, endStream, block...) }
}

// listWith returns a GET of podsOfA in which other replaces the field of the same name.
func listWith(other field) []field { return withField(request(podsOfA), other) }

// listWithout returns a GET of podsOfA without the field of that name.
func listWithout(name string) []field { return withoutField(request(podsOfA), name) }

// parseFields returns fields that are written as name=value: ":path=/x" has the name :path and the value /x.
func parseFields(all ...string) []field {
	var parsed []field
	for _, f := range all {
		name, value, _ := strings.Cut(f, "=")
		parsed = append(parsed, field{name, value})
	}
	return parsed
}

// pseudoAttacks have a method, path or authority twice, not at all, out of order or malformed.
func pseudoAttacks() []attack {
	var out []attack
	// add adds a request with this header block and no body.
	add := func(v verdict, name string, block []field) {
		out = append(out, attack{name: name, verdict: v, frames: oneRequest(block...)})
	}
	// Before an ordinary request, a second value of its pseudo-headers, or one that no request has.
	for _, f := range parseFields(
		":path="+pods, ":path="+podsOfA, ":method=DELETE", ":authority=example.com", ":scheme=http", ":user=admin",
		":status=200", ":impersonate-user=admin", ":protocol=websocket",
	) {
		add(answeredAsUpstream, f.String()+" before a request", slices.Concat([]field{f}, request(podsOfA)))
	}
	// A pseudo-header is missing.
	for _, name := range []string{":path", ":method", ":scheme", ":authority"} {
		add(answeredAsUpstream, "no "+name, listWithout(name))
	}
	// A pseudo-header of an ordinary request has another value. Some values would add a line to a request of HTTP/1.1.
	for _, f := range parseFields(
		":path=", ":path=api/v1/pods", ":path=//example.com"+podsOfA, ":path="+podsOfA+" HTTP/1.1",
		":path="+podsOfA+" HTTP/1.1\r\nImpersonate-User: admin\r\n\r\n", ":path=/api/v1/pods\x00", ":path="+podsOfA+"#x",
		":method=", ":method=GET /api/v1/pods HTTP/1.1", ":method=GET\r\nX: y",
		":authority=", ":authority=example.com", ":authority={host}/api/v1/pods", ":authority=admin@{host}",
		":authority={host}\r\nImpersonate-User: admin",
		":scheme=http", ":scheme=https://example.com/?",
	) {
		add(answeredAsUpstream, f.String(), listWith(f))
	}
	// What listproxy refuses: a path that is an absolute URL or the whole server, and a tunnel.
	for _, path := range []string{"https://{host}" + podsOfA, "https://example.com/", "*"} {
		add(refused, "path "+path, listWith(field{":path", path}))
	}
	for _, authority := range []string{"{host}", "169.254.169.254:80"} {
		add(refused, "CONNECT "+authority, parseFields(":method=CONNECT", ":authority="+authority, "audit-id={id}.1"))
	}
	// Fields in another place or twice, and CONNECT with a path.
	connect := listWith(field{":method", "CONNECT"})
	add(answeredAsUpstream, "path after a request", request(podsOfA, field{":path", pods}))
	add(answeredAsUpstream, "path after regular fields only", slices.Concat(listWithout(":path"), []field{{":path", pods}}))
	add(answeredAsUpstream, "no authority but a host", slices.Concat(listWithout(":authority"), []field{{"host", "{host}"}}))
	add(answeredAsUpstream, "authority and another host", request(podsOfA, field{"host", "example.com"}))
	add(answeredAsUpstream, "two hosts", request(podsOfA, field{"host", "a"}, field{"host", "b"}))
	add(answeredAsUpstream, "CONNECT with a path", slices.Concat(connect, []field{{"x", "y"}}))
	add(answeredAsUpstream, "CONNECT with a path and a protocol", slices.Concat([]field{{":protocol", "websocket"}}, connect))
	add(answeredAsUpstream, "no fields", nil)
	out = append(out, attack{name: "an ordinary list", frames: oneRequest(request(podsOfA)...), wantHitFor: []string{reader}})
	return withUsers([]string{reader}, out...)
}

// fieldAttacks have, besides the fields of an ordinary GET, one that HTTP/2 forbids or that claims an identity.
func fieldAttacks() []attack {
	out := []attack{
		{name: "authorization twice", frames: oneRequest(request(pods, field{"authorization", "Bearer x"})...)},
		{name: "cookies in parts", frames: oneRequest(request(podsOfA, field{"cookie", "a=b"}, field{"cookie", "c=d"})...)},
		{name: "huge", frames: oneRequest(request(podsOfA, field{"x-huge", strings.Repeat("x", 400_000)})...), verdict: refused},
	}
	for _, f := range parseFields(
		// Identities, in names that HTTP/2 forbids: with capitals, spaces, a colon, NUL or a letter that is not ASCII.
		"Impersonate-User=admin", "impersonate-User=admin", "X-Remote-User=admin", "AUTHORIZATION=Bearer x",
		"impersonate-user =admin", " impersonate-user=admin", "impersonate-user:=admin", "impersonate-user\x00=admin",
		"imp\u00e9rsonate-user=admin",
		// Identities in values with spaces or control characters, and in a name that some servers take for the header.
		"impersonate-user= admin", "impersonate-user=admin ", "impersonate-user=admin\r\nx: y", "impersonate-user=ad\x00min",
		"authorization= Bearer x", "impersonate_user=admin",
		// Identities behind the end of a line that HTTP/1.1 would have.
		"x=y\r\nimpersonate-user: admin", "x=y\nimpersonate-user: admin", "x=y\rimpersonate-user: admin",
		"x\r\nimpersonate-user=admin", "x: y\r\nimpersonate-user=admin",
		// No value, or no name.
		"host=", "=x", " =x",
		// Headers of a connection, which HTTP/2 does not have.
		"connection=impersonate-user", "connection=close", "connection=keep-alive", "Connection=authorization",
		"keep-alive=x", "proxy-connection=keep-alive", "transfer-encoding=chunked", "upgrade=websocket", "upgrade=h2c",
		"te=trailers", "te=gzip", "te=trailers, deflate", "trailer=impersonate-user", "expect=100-continue",
		"http2-settings=AAMAAABkAARAAAAAAAIAAAAA",
		// Lengths of a body that does not come.
		"content-length=0", "content-length=5", "content-length=-1", "content-length=+0", "content-length=0, 0", "content-length=x",
	) {
		out = append(out, attack{name: f.String(), frames: oneRequest(request(podsOfA, f)...)})
	}
	return withUsers([]string{reader}, out...)
}

// postWith returns the header block of a POST of JSON, with more fields at the end. A body is to follow.
func postWith(more ...field) []field {
	return slices.Concat(listWith(field{":method", "POST"}), []field{{"content-type", "application/json"}}, more)
}

// frameAttacks have bodies of another length than they say, and fields behind bodies. The frames themselves are well formed:
// in both servers net/http alone decides what a frame may be.
func frameAttacks() []attack {
	var out []attack
	for _, tt := range []struct {
		name       string
		block      []field
		onlyHeader bool   // the header block ends the request
		body       string // of the DATA frame that follows, unless onlyHeader
		malformed  bool   // the body has another length than content-length says
	}{
		{name: "GET with a body", block: request(podsOfA), body: "x"},
		{name: "GET with an empty body", block: request(podsOfA)},
		{name: "body longer than content-length", block: postWith(field{"content-length", "2"}), body: "{}{}{}", malformed: true},
		{name: "body shorter than content-length", block: postWith(field{"content-length", "20"}), body: "{}", malformed: true},
		{name: "content-length without a body", block: postWith(field{"content-length", "20"}), onlyHeader: true, malformed: true},
		{
			name:  "two values of content-length",
			block: postWith(field{"content-length", "2"}, field{"content-length", "3"}), body: "{}", malformed: true,
		},
	} {
		out = append(out, attack{name: tt.name, malformedBody: tt.malformed, frames: func(w *wire) {
			if tt.onlyHeader {
				w.writeHeaders(attackStream, endStream, tt.block...)
				return
			}
			w.writeHeaders(attackStream, moreFollows, tt.block...)
			w.writeData(endStream, tt.body)
		}})
	}
	out = append(
		out,
		attack{name: "identity in trailers", frames: func(w *wire) {
			w.writeHeaders(attackStream, moreFollows, postWith(field{"trailer", "impersonate-user, authorization"})...)
			w.writeData(moreFollows, "{}")
			w.writeHeaders(attackStream, endStream, parseFields("impersonate-user=admin", "authorization=Bearer x", "x-remote-user=admin")...)
		}},
		attack{name: "identity in trailers of a GET", frames: func(w *wire) {
			w.writeHeaders(attackStream, moreFollows, request(podsOfA, field{"trailer", "impersonate-user"})...)
			w.writeHeaders(attackStream, endStream, field{"impersonate-user", "admin"})
		}},
		attack{name: "path in trailers", malformedBody: true, frames: func(w *wire) {
			w.writeHeaders(attackStream, moreFollows, postWith()...)
			w.writeHeaders(attackStream, endStream, field{":path", pods})
		}},
		attack{
			name:   "a header block of several frames",
			frames: oneRequest(request(podsOfA, field{"x-long", strings.Repeat("\xff", 60_000)})...),
		},
		attack{name: "forty streams at a time", frames: func(w *wire) {
			for i := range uint32(40) {
				w.writeHeaders(attackStream+2*i, endStream, request(podsOfA)...)
			}
		}},
	)
	return withUsers([]string{reader}, out...)
}
