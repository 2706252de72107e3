package forward

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/listproxy/listproxy/proxy/auth"
	"github.com/listproxy/listproxy/proxy/kubehttp"
	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/inmemory"
	"github.com/listproxy/listproxy/test/proxytest"
)

// fixedUpstream sends every request with one transport.
type fixedUpstream struct{ transport http.RoundTripper }

func (fixedUpstream) URL() *url.URL {
	return &url.URL{Scheme: "https", Host: "upstream:6443", Path: "/prefix"}
}

func (u fixedUpstream) RoundTripper(auth.Identity, *kubehttp.Request) http.RoundTripper {
	return u.transport
}

func (fixedUpstream) RecordAnswer(auth.Identity, bool, string, int) {}

// sendThrough forwards r. It returns the request as an upstream reads it off the wire, and the raw target in its first line.
// arrived is nil if nothing arrives: the forwarder refuses r, or net/http does not send it.
func sendThrough(t *testing.T, r *http.Request) (arrived *http.Request, target string) {
	t.Helper()
	var outgoing *http.Request
	// A real transport refuses headers that must not be sent. It hands on what it would send, except WebSocket upgrades.
	transport := &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) {
		return nil, errors.New("there is no upstream")
	}}
	transport.RegisterProtocol("https", proxytest.Transport(func(r *http.Request) (*http.Response, error) {
		outgoing = r
		return inmemory.Answer(r, http.StatusOK, ""), nil
	}))
	w := httptest.NewRecorder()
	New(fixedUpstream{transport}, proxytest.DiscardLog()).ServeAs(w, r, auth.Identity{}, nil)
	if outgoing == nil {
		// The forwarder answers 400 to what it refuses, and 503 to what the transport does not send.
		if w.Code != http.StatusBadRequest && w.Code != http.StatusServiceUnavailable {
			t.Errorf("nothing was sent, and the answer is %d, want 400 or 503", w.Code)
		}
		return nil, ""
	}
	var wire bytes.Buffer
	if err := outgoing.Write(&wire); err != nil {
		return nil, "" // the transport would not send it either
	}
	line, _, _ := strings.Cut(wire.String(), "\r\n")
	reader := bufio.NewReader(&wire)
	arrived, err := http.ReadRequest(reader)
	if err != nil {
		t.Fatalf("the upstream does not read %q: %v", line, err)
	}
	if rest, err := io.ReadAll(reader); err != nil || len(rest) > 0 {
		t.Errorf("%q follows the request (%v), want nothing: it must be one request", rest, err)
	}
	return arrived, strings.TrimSuffix(strings.TrimPrefix(line, r.Method+" "), " HTTP/1.1")
}

// mustDrop reports whether the caller's header of this name must not reach the upstream. options are those of the caller's
// Connection header.
func mustDrop(name string, options []string) bool {
	return isProxyHeader(name) || isHopByHop(name) || slices.Contains(options, strings.ToLower(name))
}

// isProxyHeader reports whether only a trusted proxy may set a header, since it says who or where the caller is.
func isProxyHeader(name string) bool {
	dashed := strings.ReplaceAll(strings.ToLower(name), "_", "-") // as some gateways read it
	return dashed == "forwarded" || dashed == "x-real-ip" ||
		strings.HasPrefix(dashed, "x-forwarded-") || strings.HasPrefix(dashed, "x-remote-")
}

// isHopByHop reports whether a header is about one connection, or about the form of a message on it.
func isHopByHop(name string) bool {
	return slices.Contains([]string{
		"connection", "proxy-connection", "keep-alive", "proxy-authenticate", "proxy-authorization", "te", "trailer",
		"transfer-encoding", "upgrade", "content-length", "host",
	}, strings.ToLower(name))
}

// connectionOptions returns the names of headers that Connection lists, in lower case.
func connectionOptions(header http.Header) []string {
	var options []string
	for _, value := range header["Connection"] {
		for option := range strings.SplitSeq(value, ",") {
			options = append(options, strings.ToLower(strings.TrimSpace(option)))
		}
	}
	return options
}

// FuzzForward: a forwarded request arrives at the upstream as one request.
//
//   - Its target is the upstream's prefix and then the caller's target, byte for byte.
//   - All headers of the caller arrive, except those that must be dropped (mustDrop). Hop-by-hop headers, and headers that only
//     a trusted proxy may set, do not arrive.
//   - Only X-Forwarded-For, with the caller's address, and net/http's Content-Length are added.
func FuzzForward(f *testing.F) {
	for _, text := range []string{
		// Several values of a credential, impersonation.
		"GET /api/v1/pods?limit=5 HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer a\r\nAuthorization: Bearer b\r\n",
		"GET /a HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer a\r\nImpersonate-User: b\r\nImpersonate-Group: c\r\nImpersonate-Group: d\r\nImpersonate-Uid: 1\r\n",
		// Hop-by-hop lists that name identity headers, other headers, and headers that must not be dropped.
		"GET / HTTP/1.1\r\nHost: x\r\nConnection: Impersonate-User\r\nImpersonate-User: a\r\n",
		"GET / HTTP/1.1\r\nHost: x\r\nConnection: close, impersonate-extra-x\r\nImpersonate-Extra-X: a\r\n",
		"GET / HTTP/1.1\r\nHost: x\r\nConnection: authorization\r\nAuthorization: Bearer a\r\n",
		"GET /? HTTP/1.1\r\nHost: x\r\nConnection: close, x-own\r\nX-Own: a\r\nImpersonate-Extra-a%2fb: c\r\n",
		"GET /a HTTP/1.1\r\nHost: x\r\nConnection: X-Forwarded-For, Host, User-Agent\r\nKeep-Alive: 5\r\nProxy-Authorization: Basic eA==\r\nProxy-Connection: keep-alive\r\n",
		// Headers that only a trusted proxy may set, also in other letters and with underscores.
		"GET /a HTTP/1.1\r\nHost: x\r\nForwarded: for=a\r\nX-Forwarded-For: a\r\nX-Real-Ip: b\r\nX_Remote_User: c\r\n",
		"GET /a HTTP/1.1\r\nHost: x\r\nConnection: upgrade\r\nUpgrade: websocket\r\nImpersonate_User: x\r\n",
		"GET /a HTTP/1.1\r\nHost: x\r\nX-REMOTE-EXTRA-Scopes: x\r\nX-Remote-Uid: 1\r\nX-Forwarded-Host: a\r\nX-Forwarded-Proto: http\r\nX-Forwarded-Uri: /\r\n",
		// Names that only look like such headers, and usual headers.
		"GET /a HTTP/1.1\r\nHost: x\r\nX-Remotely: 1\r\nX-Forward: 2\r\nForwarded-By: 3\r\nTe: gzip\r\n",
		"GET /a HTTP/1.1\r\nHost: x\r\nUser-Agent: kubectl/v1.36.3\r\nAccept-Encoding: gzip\r\nAudit-Id: 1\r\nX-Custom: a\r\nX-Custom: b\r\n",
		// Unusual targets, and a trailer that names a credential.
		"GET //api/%2f/..;x=%zz?a;b&%% HTTP/1.1\r\nHost: x\r\nX-Remote-User: admin\r\nx-remote-group: system:masters\r\n",
		"GET http://other/a HTTP/1.1\r\nHost: x\r\n", "OPTIONS * HTTP/1.1\r\nHost: x\r\n",
		"GET /a\\b|c\"<> HTTP/1.1\r\nHost: x\r\nTe: trailers\r\n",
		"POST /a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nTrailer: Authorization\r\nCookie: a=b\r\n",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, head string) {
		r, err := http.ReadRequest(bufio.NewReader(strings.NewReader(head + "\r\n")))
		if err != nil || r.Method == http.MethodConnect {
			return
		}
		r.Body = http.NoBody
		r.ContentLength = 0
		r.TransferEncoding = nil
		r.RemoteAddr = "192.0.2.1:1234"
		sent := r.Header.Clone()
		arrived, target := sendThrough(t, r)
		if arrived == nil {
			return
		}
		if want := "/prefix" + r.RequestURI; target != want {
			t.Errorf("the target is %q, want %q", target, want)
		}
		expect.Same(t, "upstream:6443", arrived.Host)
		expect.Same(t, []string{"192.0.2.1"}, arrived.Header["X-Forwarded-For"])
		arrived.Header.Del("X-Forwarded-For")
		options := connectionOptions(sent)
		for name, values := range sent {
			isIdentity := name == "Authorization" || strings.HasPrefix(name, "Impersonate-") // never dropped, even if Connection names it
			if isIdentity || !mustDrop(name, options) {
				if diff := cmp.Diff(values, arrived.Header[name]); diff != "" {
					t.Errorf("%s:\n%s", name, diff)
				}
			}
		}
		var noOptions []string // only the headers that must be dropped whatever Connection lists
		// ReverseProxy and net/http write these for the next connection, in place of the caller's.
		mayBeRewritten := []string{"Connection", "Upgrade", "Te", "Content-Length"}
		for name, values := range arrived.Header {
			if mustDrop(name, noOptions) && !slices.Contains(mayBeRewritten, name) {
				t.Errorf("%s: %q arrived, which must be dropped", name, values)
			}
			if _, sentByCaller := sent[name]; !sentByCaller && name != "Content-Length" {
				t.Errorf("%s: %q arrived, which the caller had not sent", name, values)
			}
		}
	})
}
