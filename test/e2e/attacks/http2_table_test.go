package attacks

import (
	"slices"
	"strings"

	h2 "golang.org/x/net/http2"
)

// http2Attacks can only be said in HTTP/2.
func http2Attacks() map[string][]attack {
	return map[string][]attack{"pseudo": pseudoAttacks(), "fields": fieldAttacks(), "frames": frameAttacks()}
}

// whole sends fields as a whole request.
func whole(fields ...field) func(*wire) {
	return func(w *wire) { w.headers(attackStream, true, fields...) }
}

// replaced is a request for a list with another value of one field.
func replaced(name, value string) []field {
	fields := request(podsOfA)
	for i := range fields {
		if fields[i][0] == name {
			fields[i][1] = value
		}
	}
	return fields
}

// without is a request for a list without one field.
func without(name string) []field {
	return slices.DeleteFunc(request(podsOfA), func(f field) bool { return f[0] == name })
}

// ahead is a request for a list with fields before it.
func ahead(fields ...field) []field { return append(fields, request(podsOfA)...) }

// pseudoAttacks say method, path or host twice, not at all, or out of order.
func pseudoAttacks() []attack {
	return by([]string{reader},
		attack{name: "plain", frames: whole(request(podsOfA)...), hit: []string{reader}},
		attack{name: "two paths", frames: whole(ahead(field{":path", pods})...)},
		attack{name: "two paths, the same", frames: whole(ahead(field{":path", podsOfA})...)},
		attack{name: "two methods", frames: whole(ahead(field{":method", "DELETE"})...)},
		attack{name: "two authorities", frames: whole(ahead(field{":authority", "example.com"})...)},
		attack{name: "two schemes", frames: whole(ahead(field{":scheme", "http"})...)},
		attack{name: "path behind", frames: whole(request(podsOfA, field{":path", pods})...)},
		attack{name: "only path, behind", frames: whole(append(without(":path"), field{":path", pods})...)},
		attack{name: "no path", frames: whole(without(":path")...)},
		attack{name: "no method", frames: whole(without(":method")...)},
		attack{name: "no scheme", frames: whole(without(":scheme")...)},
		attack{name: "no authority", frames: whole(without(":authority")...), elsewhere: true},
		attack{name: "no authority but a host", frames: whole(append(without(":authority"), field{"host", "{host}"})...)},
		attack{name: "empty path", frames: whole(replaced(":path", "")...)},
		attack{name: "empty method", frames: whole(replaced(":method", "")...)},
		attack{name: "empty authority", frames: whole(replaced(":authority", "")...), elsewhere: true},
		attack{name: "path without a slash", frames: whole(replaced(":path", "api/v1/pods")...)},
		attack{name: "path a whole URL", frames: whole(replaced(":path", "https://{host}"+podsOfA)...), want: refused},
		attack{name: "path a URL elsewhere", frames: whole(replaced(":path", "https://example.com/")...), want: refused},
		attack{name: "path two slashes and a host", frames: whole(replaced(":path", "//example.com"+podsOfA)...)},
		attack{name: "path an asterisk", frames: whole(replaced(":path", "*")...), want: refused},
		attack{name: "path with a space", frames: whole(replaced(":path", podsOfA+" HTTP/1.1")...)},
		attack{name: "path with a request", frames: whole(replaced(":path", podsOfA+" HTTP/1.1\r\nImpersonate-User: admin\r\n\r\n")...)},
		attack{name: "path with a NUL", frames: whole(replaced(":path", "/api/v1/pods\x00")...)},
		attack{name: "path with a fragment", frames: whole(replaced(":path", podsOfA+"#x")...)},
		attack{name: "method with a space", frames: whole(replaced(":method", "GET /api/v1/pods HTTP/1.1")...)},
		attack{name: "method with a line", frames: whole(replaced(":method", "GET\r\nX: y")...)},
		attack{name: "authority elsewhere", frames: whole(replaced(":authority", "example.com")...), elsewhere: true},
		attack{name: "authority with a user", frames: whole(replaced(":authority", "admin@{host}")...)},
		attack{name: "authority with a path", frames: whole(replaced(":authority", "{host}/api/v1/pods")...), elsewhere: true},
		attack{name: "authority with a line", frames: whole(replaced(":authority", "{host}\r\nImpersonate-User: admin")...)},
		attack{name: "authority against host", frames: whole(request(podsOfA, field{"host", "example.com"})...)},
		attack{name: "hosts", frames: whole(request(podsOfA, field{"host", "a"}, field{"host", "b"})...)},
		attack{name: "scheme http", frames: whole(replaced(":scheme", "http")...)},
		attack{name: "scheme odd", frames: whole(replaced(":scheme", "https://example.com/?")...)},
		attack{name: "unknown pseudo", frames: whole(ahead(field{":user", "admin"})...)},
		attack{name: "a status", frames: whole(ahead(field{":status", "200"})...)},
		attack{name: "an identity as pseudo", frames: whole(ahead(field{":impersonate-user", "admin"})...)},
		attack{name: "protocol of a GET", frames: whole(ahead(field{":protocol", "websocket"})...)},
		attack{name: "extended CONNECT", frames: whole(append(replaced(":method", "CONNECT"), field{"x", "y"})...)},
		attack{name: "extended CONNECT with a protocol", frames: whole(append([]field{{":protocol", "websocket"}}, replaced(":method", "CONNECT")...)...)},
		attack{name: "CONNECT", frames: whole(field{":method", "CONNECT"}, field{":authority", "{host}"}, field{"audit-id", "{id}.1"}), want: refused},
		attack{name: "CONNECT elsewhere", frames: whole(field{":method", "CONNECT"}, field{":authority", "169.254.169.254:80"}, field{"audit-id", "{id}.1"}), want: refused},
		attack{name: "nothing at all", frames: whole()},
	)
}

// fieldAttacks have fields that HTTP/2 forbids, or that say who somebody is.
func fieldAttacks() []attack {
	out := by([]string{reader},
		attack{name: "authorization twice", frames: whole(request(pods, field{"authorization", "Bearer x"})...)},
		attack{name: "cookies in parts", frames: whole(request(podsOfA, field{"cookie", "a=b"}, field{"cookie", "c=d"})...)},
	)
	for _, f := range []field{
		{"Impersonate-User", "admin"},
		{"impersonate-User", "admin"},
		{"X-Remote-User", "admin"},
		{"AUTHORIZATION", "Bearer x"},
		{"connection", "impersonate-user"},
		{"connection", "close"},
		{"connection", "keep-alive"},
		{"Connection", "authorization"},
		{"keep-alive", "x"},
		{"proxy-connection", "keep-alive"},
		{"transfer-encoding", "chunked"},
		{"upgrade", "websocket"},
		{"upgrade", "h2c"},
		{"te", "trailers"},
		{"te", "gzip"},
		{"te", "trailers, deflate"},
		{"host", ""},
		{"", "x"},
		{" ", "x"},
		{"impersonate-user ", "admin"},
		{" impersonate-user", "admin"},
		{"impersonate-user:", "admin"},
		{"impersonate-user\x00", "admin"},
		{"impersonate-user", " admin"},
		{"impersonate-user", "admin "},
		{"impersonate-user", "admin\r\nx: y"},
		{"impersonate-user", "ad\x00min"},
		{"x", "y\r\nimpersonate-user: admin"},
		{"x", "y\nimpersonate-user: admin"},
		{"x", "y\rimpersonate-user: admin"},
		{"x\r\nimpersonate-user", "admin"},
		{"x: y\r\nimpersonate-user", "admin"},
		{"impersonate_user", "admin"},
		{"imp\u00e9rsonate-user", "admin"},
		{"authorization", " Bearer x"},
		{"content-length", "0"},
		{"content-length", "5"},
		{"content-length", "-1"},
		{"content-length", "+0"},
		{"content-length", "0, 0"},
		{"content-length", "x"},
		{"trailer", "impersonate-user"},
		{"expect", "100-continue"},
		{"x-huge", strings.Repeat("x", 400_000)},
		{"http2-settings", "AAMAAABkAARAAAAAAAIAAAAA"},
	} {
		name := strings.ToValidUTF8(f[0]+"="+f[1][:min(len(f[1]), 40)], "?")
		a := attack{name: name, as: []string{reader}, frames: whole(request(podsOfA, f)...)}
		if f[0] == "x-huge" {
			a.want = refused
		}
		out = append(out, a)
	}
	return out
}

// frameAttacks lie about lengths and order. Frames for a stream that may have been answered already
// are left out: whether they end the stream or the connection is a matter of moments, in both
// servers.
func frameAttacks() []attack {
	list := func(more ...field) []field { return request(podsOfA, more...) }
	posted := func(more ...field) []field {
		return append(replaced(":method", "POST"), append([]field{{"content-type", "application/json"}}, more...)...)
	}
	return by([]string{reader},
		attack{name: "body of a GET", frames: func(w *wire) {
			w.headers(attackStream, false, list()...)
			w.data(true, "x")
		}},
		attack{name: "empty body of a GET", frames: func(w *wire) {
			w.headers(attackStream, false, list()...)
			w.data(true, "")
		}},
		attack{name: "body longer than its length", unread: true, frames: func(w *wire) {
			w.headers(attackStream, false, posted(field{"content-length", "2"})...)
			w.data(true, "{}{}{}")
		}},
		attack{name: "body shorter than its length", unread: true, frames: func(w *wire) {
			w.headers(attackStream, false, posted(field{"content-length", "20"})...)
			w.data(true, "{}")
		}},
		attack{name: "no body but a length", unread: true, frames: func(w *wire) { w.headers(attackStream, true, posted(field{"content-length", "20"})...) }},
		attack{name: "two lengths", unread: true, frames: func(w *wire) {
			w.headers(attackStream, false, posted(field{"content-length", "2"}, field{"content-length", "3"})...)
			w.data(true, "{}")
		}},
		attack{name: "identity in trailers", frames: func(w *wire) {
			w.headers(attackStream, false, posted(field{"trailer", "impersonate-user, authorization"})...)
			w.data(false, "{}")
			w.headers(attackStream, true, field{"impersonate-user", "admin"}, field{"authorization", "Bearer x"}, field{"x-remote-user", "admin"})
		}},
		attack{name: "identity in trailers of a GET", frames: func(w *wire) {
			w.headers(attackStream, false, list(field{"trailer", "impersonate-user"})...)
			w.headers(attackStream, true, field{"impersonate-user", "admin"})
		}},
		attack{name: "pseudo in trailers", unread: true, frames: func(w *wire) {
			w.headers(attackStream, false, posted()...)
			w.headers(attackStream, true, field{":path", pods})
		}},
		attack{name: "headers in many continuations", frames: func(w *wire) {
			w.headers(attackStream, true, list(field{"x-long", strings.Repeat("\xff", 60_000)})...)
		}},
		attack{name: "continuations without end", frames: func(w *wire) {
			w.frame(h2.FrameHeaders, h2.FlagHeadersEndStream, attackStream, nil)
			for range 2000 { // of nothing, which no limit on the size of headers sees
				w.frame(h2.FrameContinuation, 0, attackStream, nil)
			}
		}},
		attack{name: "data between continuations", frames: func(w *wire) {
			w.frame(h2.FrameHeaders, 0, attackStream, nil)
			w.data(true, "x")
		}},
		attack{name: "continuation of nothing", frames: func(w *wire) { w.frame(h2.FrameContinuation, h2.FlagContinuationEndHeaders, attackStream, nil) }},
		attack{name: "data before headers", frames: func(w *wire) { w.data(true, "x") }},
		attack{name: "headers on stream 0", frames: func(w *wire) { w.frame(h2.FrameHeaders, h2.FlagHeadersEndHeaders, 0, nil) }},
		attack{name: "even stream", frames: func(w *wire) { w.headers(2, true, list()...) }},
		attack{name: "push", frames: func(w *wire) {
			w.frame(h2.FramePushPromise, h2.FlagPushPromiseEndHeaders, attackStream, []byte{0, 0, 0, 2})
		}},
		attack{name: "malformed compression", frames: func(w *wire) {
			w.frame(h2.FrameHeaders, h2.FlagHeadersEndHeaders|h2.FlagHeadersEndStream, attackStream, []byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff})
		}},
		attack{name: "compressed by what is not in the table", frames: func(w *wire) {
			w.frame(h2.FrameHeaders, h2.FlagHeadersEndHeaders|h2.FlagHeadersEndStream, attackStream, []byte{0xfe})
		}},
		attack{name: "padding longer than the frame", frames: func(w *wire) {
			w.frame(h2.FrameData, h2.FlagDataPadded, attackStream, []byte{0xff, 'x'})
		}},
		attack{name: "unknown frame", frames: func(w *wire) {
			w.frame(0xfa, 0xff, attackStream, []byte("x"))
			w.headers(attackStream, true, list()...)
		}, hit: []string{reader}},
		attack{name: "settings of odd length", frames: func(w *wire) { w.frame(h2.FrameSettings, 0, 0, []byte{1}) }},
		attack{name: "window beyond its end", frames: func(w *wire) { w.frame(h2.FrameWindowUpdate, 0, 0, []byte{0x7f, 0xff, 0xff, 0xff}) }},
		attack{name: "window of nothing", frames: func(w *wire) { w.frame(h2.FrameWindowUpdate, 0, 0, []byte{0, 0, 0, 0}) }},
		attack{name: "reset of an idle stream", frames: func(w *wire) { w.frame(h2.FrameRSTStream, 0, 7, []byte{0, 0, 0, 8}) }},
		attack{name: "many streams at a time", frames: func(w *wire) {
			for i := range uint32(40) {
				w.headers(attackStream+2*i, true, list()...)
			}
		}},
	)
}
