package proxy

import (
	"context"
	"fmt"
	"log"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/listproxy/listproxy/proxy/authn"
	"github.com/listproxy/listproxy/proxy/kubehttp"
	"github.com/listproxy/listproxy/proxy/observe"
	"github.com/listproxy/listproxy/proxy/upstream"
	"github.com/listproxy/listproxy/telemetry"
)

const (
	// copyBufferSize is io.Copy's own size; watch events mostly fit.
	copyBufferSize = 32 << 10

	unreachableMessage = "listproxy could not get an answer from the Kubernetes API server. " +
		"A write may or may not have been carried out: read the object before trying again. " +
		"The cause is in listproxy's log; check that the API server is up and that listproxy's " +
		"client configuration has its address and CA."
)

// ForwardUpstream is the way to the API server.
type ForwardUpstream interface {
	// URL returns the API server's base URL. Its path has no slash at the end.
	URL() *url.URL
	// RoundTripper returns the transport for a request of a caller. upgrade says whether the request
	// asks for another protocol on its connection.
	RoundTripper(id authn.Identity, upgrade bool) http.RoundTripper
}

// Forwarder passes requests to the API server and its answers back, both
// untouched, in both directions as they come. It is safe for concurrent use.
//
// The request that arrives upstream differs from the caller's only in its Host,
// in what is about one connection (hop-by-hop headers), and in what a caller may
// not claim about itself (removeCallerClaims); X-Forwarded-For holds the
// caller's address. It carries the caller's credentials and no others; the request
// of a stated user carries the proxy's, and says in Impersonate-* headers whose it is.
//
// Headers already set on the ResponseWriter are added to the final answer, behind
// values that the upstream gave to the same name (RFC 9211 wants the cache that
// is nearest to the user last). Nothing else is added to an answer.
//
// If the upstream does not answer, the caller gets a 503 with a metav1.Status,
// without Retry-After, since clients take that as leave to repeat a write. If
// either side breaks off later, the other side's connection or stream is broken
// off too, by a panic with [http.ErrAbortHandler]: an answer never just ends
// early, but for watches, which may end between any two events ([Forwarder.EndWatches], which says where
// that cannot be told).
// Handlers around this one must let that panic pass.
type Forwarder struct {
	upstream ForwardUpstream
	base     *url.URL // of the API server
	log      *slog.Logger
	buffers  copyBuffers
	watches  openWatches
	// seldom keeps what callers and backends cause from flooding the log.
	seldom telemetry.Seldom
}

// NewForwarder returns a Forwarder to up. What the upstream does wrong is logged
// as a warning; callers that go away are only seen at debug level.
func NewForwarder(up ForwardUpstream, log *slog.Logger) *Forwarder {
	return &Forwarder{upstream: up, base: up.URL(), log: log}
}

// ServeAs forwards r as a request of id. It returns the status of the upstream's answer, or 0 if there
// was none that could be used.
func (f *Forwarder) ServeAs(w http.ResponseWriter, r *http.Request, id authn.Identity) (code int) {
	if reason, message := f.malformed(r, id); reason != "" {
		refuse(w, r, reason, message)
		return 0
	}
	asked := kubehttp.Of(r)
	if asked.CoreList() && r.Method == http.MethodGet {
		w = unflushed{w}
	}
	x := newExchange(f, w, r, id)
	if asked.Watch {
		ctx, cancel := context.WithCancel(r.Context())
		x.watch = f.watches.open(cancel)
		defer f.watches.close(x.watch)
		r = r.WithContext(ctx)
	}
	reverse := httputil.ReverseProxy{
		Rewrite:        x.rewrite,
		Transport:      f.upstream.RoundTripper(id, x.upgrade != ""),
		FlushInterval:  -1, // each read is one write and one flush: watch events
		ErrorLog:       log.New(x, "", 0),
		BufferPool:     &f.buffers,
		ModifyResponse: x.modifyResponse,
		ErrorHandler:   x.fail,
	}
	reverse.ServeHTTP(w, r)
	return x.code
}

// malformed says why a request cannot be forwarded, and what its sender is told.
func (f *Forwarder) malformed(r *http.Request, id authn.Identity) (reason, message string) {
	if !strings.HasPrefix(r.RequestURI, "/") {
		return observe.RefusedTarget, "The request target must be a path: listproxy forwards to one API server only."
	}
	if name := kubehttp.IdentityNamedInConnection(r.Header); name != "" {
		return observe.RefusedConnection, fmt.Sprintf("The Connection header must not list %s, which is meant for the API server.", name)
	}
	if id.Impersonated() != nil && f.base.Path != "" && mayLeavePrefix(r.RequestURI) {
		return observe.RefusedSegments, "The path must not hold .. segments: listproxy's own credentials are for one API server only. Use a path without them, or a token."
	}
	return "", ""
}

// refuse answers a request that cannot be forwarded.
func refuse(w http.ResponseWriter, r *http.Request, reason, message string) {
	observe.RecordOf(r.Context()).Refused(w.Header(), reason)
	kubehttp.WriteStatus(w, r, http.StatusBadRequest, metav1.StatusReasonBadRequest, message)
}

// target returns the upstream's URL for a request's own target, byte for byte:
// what looks odd to a proxy (double slashes, %2f, semicolons, stray per cent
// signs) is the API server's to judge.
//
// But for a space, which HTTP/2 has in a path as it is, and which ends the target of HTTP/1.1: it is
// escaped, and means the same.
func (f *Forwarder) target(requestURI string) *url.URL {
	base := f.base
	path, query, hasQuery := strings.Cut(strings.ReplaceAll(requestURI, " ", "%20"), "?")
	raw := base.EscapedPath() + path
	target := &url.URL{
		Scheme: base.Scheme, Host: base.Host,
		RawPath: raw, RawQuery: query, ForceQuery: hasQuery && query == "",
	}
	var err error
	if target.Path, err = url.PathUnescape(raw); err == nil && target.EscapedPath() == raw {
		return target
	}
	// There are bytes that net/url would escape. It passes Opaque as it is, but
	// for two slashes at its beginning, which begin a host.
	target.Opaque = raw
	if strings.HasPrefix(raw, "//") {
		target.Opaque = "//" + base.Host + raw
	}
	return target
}

// mayLeavePrefix says whether a server that resolves dot segments may find something else than what
// is under the path that requestURI is put behind. With a caller's own credentials that is the
// server's to judge. The proxy's own must not get to another API server, nor to what does not know
// impersonation, beside the one they are for.
func mayLeavePrefix(requestURI string) bool {
	raw, _, _ := strings.Cut(requestURI, "?")
	path, err := url.PathUnescape(raw)
	if err != nil {
		return true
	}
	isSlash := func(r rune) bool { return r == '/' || r == '\\' }
	for segment := range strings.FieldsFuncSeq(path, isSlash) {
		// Some servers cut off what follows a semicolon.
		if name, _, _ := strings.Cut(segment, ";"); name == ".." {
			return true
		}
	}
	return false
}

// exchange is one request on its way. Its methods are the hooks of one
// ReverseProxy and run in its goroutine, but for Write.
type exchange struct {
	forwarder *Forwarder
	w         http.ResponseWriter
	request   *http.Request // the caller's
	caller    authn.Identity
	body      *upload
	added     http.Header // what w's header held at the beginning
	upgrade   string      // the protocol asked for, or ""
	watch     *openWatch  // nil: it is none
	sent      bool        // the request has reached the transport
	code      int         // of the upstream's answer, once it can be passed on
	switched  bool        // the upstream has agreed to the upgrade
}

func newExchange(f *Forwarder, w http.ResponseWriter, r *http.Request, caller authn.Identity) *exchange {
	// 1xx answers would send these headers and then forget them.
	added := w.Header().Clone()
	clear(w.Header())
	return &exchange{
		forwarder: f, w: w, request: r, caller: caller, body: newUpload(r.Body), added: added,
		upgrade: kubehttp.Of(r).Upgrade,
	}
}

// rewrite makes the upstream's request. It runs after ReverseProxy has removed
// what the Connection header lists, so nothing set here can be removed that way.
func (x *exchange) rewrite(pr *httputil.ProxyRequest) {
	x.sent = true
	pr.Out.URL = x.forwarder.target(pr.In.RequestURI)
	pr.Out.Host = x.forwarder.base.Host
	// The server fills this very map once the body has been read; the copy that
	// ReverseProxy made would stay empty.
	pr.Out.Trailer = pr.In.Trailer
	if x.caller.Impersonated() != nil {
		pr.Out.Trailer = nil // with listproxy's credentials goes only what was looked at
	}
	if pr.Out.Body != nil {
		pr.Out.Body, _ = x.body.reader() // nothing was read yet
		pr.Out.GetBody = x.body.reader
	}
	kubehttp.RemoveCallerClaims(pr.Out.Header)
	if x.caller.Impersonated() != nil {
		x.caller.Present(pr.Out.Header) // the others have said so themselves
	}
	kubehttp.SetForwardedFor(pr.Out.Header, pr.In.RemoteAddr)
}

// modifyResponse runs before the final answer's header is sent, 101 included.
func (x *exchange) modifyResponse(res *http.Response) error {
	switch {
	case res.StatusCode == http.StatusSwitchingProtocols:
		if got := kubehttp.UpgradeProtocol(res.Header); x.upgrade == "" || !strings.EqualFold(got, x.upgrade) {
			return fmt.Errorf("it switched to protocol %q when %q was asked for", got, x.upgrade)
		}
		x.switched = true
		// Knowing that it answers a POST, res.Write would add a Content-Length,
		// which a 101 must not have (RFC 9110, 8.6).
		res.Request = nil
	case x.upgrade != "":
		// The client may have been about to speak another protocol; neither
		// side shall take that for a second request.
		res.Header.Set("Connection", "close")
	}
	upstream.NoteAcceptance(x.request, x.caller, res.StatusCode)
	if x.request.ProtoMajor == 2 && !kubehttp.Of(x.request).LongRunning && (res.StatusCode == http.StatusUnauthorized || x.caller.Impersonated() == nil && !x.caller.BringsToken()) {
		// As kube-apiserver does (UnauthenticatedHTTP2DOSMitigation): who is not known gets
		// one request of a connection that costs much.
		res.Header.Set("Connection", "close")
	}
	if len(res.Trailer) > 0 && x.request.ProtoMajor == 1 && x.request.Method != http.MethodHead {
		// HTTP/2 allows a length and trailers together, HTTP/1.1 has trailers
		// in chunked bodies only.
		res.Header.Del("Content-Length")
	}
	if x.watch != nil {
		if err := x.watch.answered(res); err != nil {
			return err
		}
	}
	for name, values := range x.added {
		res.Header[name] = append(res.Header[name], values...)
	}
	// The server would make up what the upstream did not send.
	for _, name := range []string{"Content-Type", "Date"} {
		if _, ok := res.Header[name]; !ok {
			x.w.Header()[name] = nil
		}
	}
	x.code = res.StatusCode
	observe.RecordOf(x.request.Context()).Answered(x.code)
	return nil
}

// fail ends an exchange to which the upstream gave no usable answer.
func (x *exchange) fail(w http.ResponseWriter, _ *http.Request, err error) {
	r := x.request
	gone := r.Context().Err() != nil
	if gone || x.switched {
		// There is nobody to answer, or the connection is no longer HTTP's.
		x.report(gone, err.Error())
		panic(http.ErrAbortHandler)
	}
	clear(w.Header())
	maps.Copy(w.Header(), x.added)
	if x.watch != nil && x.watch.ended() {
		kubehttp.WriteShuttingDown(w, r)
		return
	}
	if !x.sent || x.body.failed.Load() {
		x.report(true, err.Error())
		w.Header().Set("Connection", "close")
		if limit := x.body.exceeded.Load(); limit > 0 {
			observe.RecordOf(r.Context()).Refused(w.Header(), observe.RefusedBody)
			kubehttp.WriteBodyTooLarge(w, r, limit)
			return
		}
		refuse(w, r, observe.RefusedMalformed, "The request's header or body is malformed or ended early, so it could not be forwarded.")
		return
	}
	x.report(false, err.Error())
	kubehttp.WriteStatus(w, r, http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable, unreachableMessage)
}

// Write takes what ReverseProxy logs: that an answer broke off.
func (x *exchange) Write(line []byte) (int, error) {
	x.report(x.request.Context().Err() != nil, strings.TrimSpace(string(line)))
	return len(line), nil
}

// report logs why an exchange ended early.
func (x *exchange) report(callersDoing bool, cause string) {
	level := slog.LevelWarn
	if callersDoing {
		level = slog.LevelDebug
	}
	say := func() {
		x.forwarder.log.Log(x.request.Context(), level, "a forwarded request ended early",
			"method", x.request.Method, "target", kubehttp.Target(x.request), "cause", cause)
	}
	if callersDoing {
		say()
		return
	}
	x.forwarder.seldom.Do(say)
}

// copyBuffers is a [httputil.BufferPool]. Its zero value is ready for use.
type copyBuffers struct{ pool sync.Pool }

// Get returns a buffer of copyBufferSize bytes.
func (c *copyBuffers) Get() []byte {
	if b, ok := c.pool.Get().(*[copyBufferSize]byte); ok {
		return b[:]
	}
	return make([]byte, copyBufferSize)
}

// Put takes back a buffer from Get.
func (c *copyBuffers) Put(b []byte) {
	// A pointer, unlike a slice, goes into the pool without an allocation.
	c.pool.Put((*[copyBufferSize]byte)(b))
}
