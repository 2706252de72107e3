package attacks

import (
	"slices"
	"strings"
)

// http2Attacks can only be said in HTTP/2.
func http2Attacks() map[string][]attack {
	return map[string][]attack{"pseudo": pseudoAttacks(), "fields": fieldAttacks(), "frames": frameAttacks()}
}

// oneRequest sends fields as a whole request.
func oneRequest(fields ...field) func(*wire) {
	return func(w *wire) { w.headers(attackStream, true, fields...) }
}

// replaceField returns a request for a list with another value of one field.
func replaceField(other field) []field {
	fields := request(podsOfA)
	for i := range fields {
		if fields[i][0] == other[0] {
			fields[i][1] = other[1]
		}
	}
	return fields
}

// removeField returns a request for a list without one field.
func removeField(name string) []field {
	return slices.DeleteFunc(request(podsOfA), func(f field) bool { return f[0] == name })
}

// fields returns fields that are written as name=value.
func fields(all ...string) []field {
	var out []field
	for _, f := range all {
		name, value, _ := strings.Cut(f, "=")
		out = append(out, field{name, value})
	}
	return out
}

// pseudoAttacks say method, path or host twice, not at all, or out of order.
func pseudoAttacks() []attack {
	var out []attack
	add := func(a attack, name string, fields []field) {
		a.name, a.frames = name, oneRequest(fields...)
		out = append(out, a)
	}
	for _, f := range fields(
		":path="+pods, ":path="+podsOfA, ":method=DELETE", ":authority=example.com", ":scheme=http", ":user=admin",
		":status=200", ":impersonate-user=admin", ":protocol=websocket",
	) {
		add(attack{}, f.String()+" ahead", append([]field{f}, request(podsOfA)...))
	}
	for _, name := range []string{":path", ":method", ":scheme"} {
		add(attack{}, "no "+name, removeField(name))
	}
	for _, f := range fields(
		":path=", ":path=api/v1/pods", ":path=//example.com"+podsOfA, ":path="+podsOfA+" HTTP/1.1",
		":path="+podsOfA+" HTTP/1.1\r\nImpersonate-User: admin\r\n\r\n", ":path=/api/v1/pods\x00", ":path="+podsOfA+"#x",
		":method=", ":method=GET /api/v1/pods HTTP/1.1", ":method=GET\r\nX: y", ":authority=admin@{host}",
		":authority={host}\r\nImpersonate-User: admin", ":scheme=http", ":scheme=https://example.com/?",
	) {
		add(attack{}, f.String(), replaceField(f))
	}
	for _, path := range []string{"https://{host}" + podsOfA, "https://example.com/", "*"} {
		add(attack{want: refused}, path, replaceField(field{":path", path}))
	}
	for _, authority := range []string{"", "example.com", "{host}/api/v1/pods"} {
		add(attack{}, "to "+authority, replaceField(field{":authority", authority}))
	}
	for _, authority := range []string{"{host}", "169.254.169.254:80"} {
		add(attack{want: refused}, "CONNECT "+authority, fields(":method=CONNECT", ":authority="+authority, "audit-id={id}.1"))
	}
	connect := replaceField(field{":method", "CONNECT"})
	add(attack{wantHitFor: []string{reader}}, "plain", request(podsOfA))
	add(attack{}, "path behind", request(podsOfA, field{":path", pods}))
	add(attack{}, "only path, behind", append(removeField(":path"), field{":path", pods}))
	add(attack{}, "no authority", removeField(":authority"))
	add(attack{}, "no authority but a host", append(removeField(":authority"), field{"host", "{host}"}))
	add(attack{}, "authority against host", request(podsOfA, field{"host", "example.com"}))
	add(attack{}, "hosts", request(podsOfA, field{"host", "a"}, field{"host", "b"}))
	add(attack{}, "extended CONNECT", append(connect, field{"x", "y"}))
	add(attack{}, "extended CONNECT with a protocol", append([]field{{":protocol", "websocket"}}, connect...))
	add(attack{}, "nothing at all", nil)
	return withUsers([]string{reader}, out...)
}

// fieldAttacks have fields that HTTP/2 forbids, or that say who somebody is.
func fieldAttacks() []attack {
	out := withUsers([]string{reader},
		attack{name: "authorization twice", frames: oneRequest(request(pods, field{"authorization", "Bearer x"})...)},
		attack{name: "cookies in parts", frames: oneRequest(request(podsOfA, field{"cookie", "a=b"}, field{"cookie", "c=d"})...)},
		attack{name: "huge", frames: oneRequest(request(podsOfA, field{"x-huge", strings.Repeat("x", 400_000)})...), want: refused},
	)
	for _, f := range fields(
		"Impersonate-User=admin", "impersonate-User=admin", "X-Remote-User=admin", "AUTHORIZATION=Bearer x",
		"impersonate-user =admin", " impersonate-user=admin", "impersonate-user:=admin", "impersonate-user\x00=admin",
		"impersonate-user= admin", "impersonate-user=admin ", "impersonate-user=admin\r\nx: y", "impersonate-user=ad\x00min",
		"impersonate_user=admin", "imp\u00e9rsonate-user=admin", "x=y\r\nimpersonate-user: admin",
		"x=y\nimpersonate-user: admin", "x=y\rimpersonate-user: admin", "x\r\nimpersonate-user=admin",
		"x: y\r\nimpersonate-user=admin", "authorization= Bearer x", "host=", "=x", " =x",

		"connection=impersonate-user", "connection=close", "connection=keep-alive", "Connection=authorization",
		"keep-alive=x", "proxy-connection=keep-alive", "transfer-encoding=chunked", "upgrade=websocket", "upgrade=h2c",
		"te=trailers", "te=gzip", "te=trailers, deflate", "trailer=impersonate-user", "expect=100-continue",
		"content-length=0", "content-length=5", "content-length=-1", "content-length=+0", "content-length=0, 0",
		"content-length=x", "http2-settings=AAMAAABkAARAAAAAAAIAAAAA",
	) {
		out = append(out, attack{name: f.String(), users: []string{reader}, frames: oneRequest(request(podsOfA, f)...)})
	}
	return out
}

// frameAttacks lie about lengths, and say more behind a body. What a frame may be, net/http alone
// decides, in both servers: that is left out.
func frameAttacks() []attack {
	posted := func(more ...field) []field {
		return append(replaceField(field{":method", "POST"}), append([]field{{"content-type", "application/json"}}, more...)...)
	}
	var out []attack
	for _, lie := range []struct {
		fields    []field
		body      string
		none      bool // no body at all
		malformed bool
	}{
		{fields: request(podsOfA), body: "x"},
		{fields: request(podsOfA), body: ""},
		{fields: posted(field{"content-length", "2"}), body: "{}{}{}", malformed: true},
		{fields: posted(field{"content-length", "20"}), body: "{}", malformed: true},
		{fields: posted(field{"content-length", "20"}), none: true, malformed: true},
		{fields: posted(field{"content-length", "2"}, field{"content-length", "3"}), body: "{}", malformed: true},
	} {
		out = append(out, attack{name: "body " + lie.body, malformedBody: lie.malformed, frames: func(w *wire) {
			if w.headers(attackStream, lie.none, lie.fields...); !lie.none {
				w.data(true, lie.body)
			}
		}})
	}
	return withUsers([]string{reader}, append(
		out,
		attack{name: "identity in trailers", frames: func(w *wire) {
			w.headers(attackStream, false, posted(field{"trailer", "impersonate-user, authorization"})...)
			w.data(false, "{}")
			w.headers(attackStream, true, fields("impersonate-user=admin", "authorization=Bearer x", "x-remote-user=admin")...)
		}},
		attack{name: "identity in trailers of a GET", frames: func(w *wire) {
			w.headers(attackStream, false, request(podsOfA, field{"trailer", "impersonate-user"})...)
			w.headers(attackStream, true, field{"impersonate-user", "admin"})
		}},
		attack{name: "pseudo in trailers", malformedBody: true, frames: func(w *wire) {
			w.headers(attackStream, false, posted()...)
			w.headers(attackStream, true, field{":path", pods})
		}},
		attack{
			name:   "headers in many continuations",
			frames: oneRequest(request(podsOfA, field{"x-long", strings.Repeat("\xff", 60_000)})...),
		},
		attack{name: "many streams at a time", frames: func(w *wire) {
			for i := range uint32(40) {
				w.headers(attackStream+2*i, true, request(podsOfA)...)
			}
		}},
	)...)
}
