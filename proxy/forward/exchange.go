package forward

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptrace"
	"net/http/httputil"
	"os"
	"strings"

	flowcontrol "k8s.io/api/flowcontrol/v1"

	"github.com/listproxy/listproxy/proxy/auth"
	"github.com/listproxy/listproxy/proxy/kubehttp"
	"github.com/listproxy/listproxy/proxy/observe"
)

// exchange forwards one request. Its methods are the hooks of one [httputil.ReverseProxy], and run
// in the goroutine of the proxy, except Write.
type exchange struct {
	forwarder *Forwarder
	w         http.ResponseWriter
	request   *http.Request // the caller's
	caller    auth.Identity
	body      *upload
	added     http.Header // the headers that w had at the beginning, which the answer gets
	upgrade   string      // the protocol asked for, or ""
	watch     *openWatch  // nil if the request is not a watch
	transport http.RoundTripper

	rewritten      bool // the request to the API server was made from the caller's
	attempts       int  // the number of connections on which it was sent
	mayHaveArrived bool // it may have arrived at the API server
	switched       bool // the API server has agreed to the upgrade
}

func newExchange(f *Forwarder, w http.ResponseWriter, r *http.Request, caller auth.Identity, body *upload) *exchange {
	// Removed from w for now: a 1xx answer would send these headers, and then the final answer would lack them.
	added := w.Header().Clone()
	clear(w.Header())
	asked := kubehttp.RequestOf(r)
	return &exchange{
		forwarder: f, w: w, request: r, caller: caller, body: body,
		added: added, upgrade: asked.Upgrade, transport: f.upstream.RoundTripper(caller, asked),
	}
}

// isRead reports whether the request changes nothing at the API server, so that it may be repeated.
func (x *exchange) isRead() bool {
	return x.upgrade == "" && (x.request.Method == http.MethodGet || x.request.Method == http.MethodHead)
}

// maxAttempts is the largest number of connections on which a request is sent. If each connection is closed (GOAWAY) as
// soon as the request comes, the transport itself would try for ever.
const maxAttempts = 8

var errTooManyAttempts = fmt.Errorf("%d connections were closed when the request came", maxAttempts)

// traced returns a context for the request, through which the transport reports its progress:
//
//	GetConn  The transport looks for a connection: for the first time, or because the API server has not looked
//	         at the last attempt, or because the request is a read. So nothing was carried out yet. After
//	         maxAttempts attempts, though, the request counts as one that may have arrived.
//	GotConn  The transport has a connection, and sends: the request may arrive from now on. The attempt after
//	         maxAttempts ends the request.
func (x *exchange) traced(ctx context.Context, end context.CancelFunc) context.Context {
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GetConn: func(string) { x.mayHaveArrived = x.attempts >= maxAttempts },
		GotConn: func(httptrace.GotConnInfo) {
			x.mayHaveArrived = true
			if x.attempts++; x.attempts > maxAttempts {
				end()
			}
		},
	})
}

// RoundTrip sends the request. If the connection ends before the answer to a read, it sends the read once more, as a
// client with a connection of its own would do.
func (x *exchange) RoundTrip(r *http.Request) (*http.Response, error) {
	res, err := x.transport.RoundTrip(r)
	if err != nil && x.mayHaveArrived && x.isRead() && r.Body == nil && r.Context().Err() == nil {
		res, err = x.transport.RoundTrip(r)
	}
	if err != nil && x.attempts > maxAttempts {
		err = errTooManyAttempts
	}
	return res, err
}

// rewrite makes the request to the API server. It runs after ReverseProxy has removed the headers that the
// Connection header lists, so none that is set here can be removed that way.
func (x *exchange) rewrite(pr *httputil.ProxyRequest) {
	x.rewritten = true
	pr.Out.URL = x.forwarder.target(pr.In.RequestURI)
	pr.Out.Host = x.forwarder.base.Host
	// net/http fills the caller's own map when it has read the body. ReverseProxy's copy would stay empty.
	pr.Out.Trailer = pr.In.Trailer
	if x.caller.Impersonated() != nil {
		pr.Out.Trailer = nil // trailers are not checked, and must not go with listproxy's credentials
	}
	if pr.Out.Body != nil {
		pr.Out.Body, _ = x.body.reader() // the first attempt
		pr.Out.GetBody = x.body.reader
	}
	// With one of these headers net/http would repeat a write whose connection ends before the answer. But
	// kube-apiserver ignores these headers, and may have carried out the write. net/http does not recognize them in
	// lower case, which means the same to servers.
	for _, name := range []string{"Idempotency-Key", "X-Idempotency-Key"} {
		if values, ok := pr.Out.Header[name]; ok {
			delete(pr.Out.Header, name)
			pr.Out.Header[strings.ToLower(name)] = values
		}
	}
	kubehttp.RemoveCallerClaims(pr.Out.Header)
	if x.caller.Impersonated() != nil {
		x.caller.Present(pr.Out.Header) // other callers have their credentials in the header already
	}
	kubehttp.SetForwardedFor(pr.Out.Header, pr.In.RemoteAddr)
}

// mayBeOfBackend reports whether the answer may be that of a pod, a Service, a kubelet or an aggregated API server.
// kube-apiserver names a FlowSchema in its answer once it knows the caller (k8s.io/apiserver,
// WithPriorityAndFairness): after that, a 401 is not its own.
func (x *exchange) mayBeOfBackend(res *http.Response) bool {
	info := kubehttp.RequestOf(x.request).Info
	return info.Subresource == "proxy" || info.Verb == "proxy" ||
		res.Header.Get(flowcontrol.ResponseHeaderMatchedFlowSchemaUID) != ""
}

// errAccountRefused means that a request for an impersonated user got a 401, which is about listproxy's own credentials.
var errAccountRefused = errors.New("kube-apiserver refuses listproxy's own account (401)")

// modifyResponse checks and adapts the final answer, 101 included, before its header is sent.
func (x *exchange) modifyResponse(res *http.Response) error {
	isOwn401 := res.StatusCode == http.StatusUnauthorized && !x.mayBeOfBackend(res)
	switch {
	case isOwn401 && x.caller.Impersonated() != nil:
		return errAccountRefused
	case res.StatusCode == http.StatusSwitchingProtocols:
		if got := kubehttp.UpgradeProtocol(res.Header); x.upgrade == "" || !strings.EqualFold(got, x.upgrade) {
			return fmt.Errorf("it switched to protocol %q when %q was asked for", got, x.upgrade)
		}
		x.switched = true
		// If res.Write knew that this answers a POST, it would add a Content-Length, which a 101
		// must not have (RFC 9110, 8.6).
		res.Request = nil
	case x.upgrade != "":
		// The client may already be speaking the other protocol, which neither side may read as a second request.
		res.Header.Set("Connection", "close")
	}
	if isOwn401 || res.StatusCode != http.StatusUnauthorized { // a backend's 401 says nothing about the caller
		x.forwarder.upstream.Answered(x.caller, x.upgrade != "", x.request.Method, res.StatusCode)
	}
	if x.watch != nil {
		if err := x.watch.takeOver(res); err != nil {
			return err
		}
	}
	x.adaptHeader(res, isOwn401)
	observe.RecordOf(x.request.Context()).SetUpstreamStatus(res.StatusCode)
	return nil
}

// adaptHeader adapts the answer's header to the caller's connection, and adds listproxy's own headers. isOwn401 says that
// kube-apiserver itself did not accept the caller.
func (x *exchange) adaptHeader(res *http.Response, isOwn401 bool) {
	if x.request.ProtoMajor == 2 && !kubehttp.RequestOf(x.request).LongRunning &&
		(isOwn401 || x.caller.Impersonated() == nil && !x.caller.HasToken()) {
		// As kube-apiserver does (UnauthenticatedHTTP2DOSMitigation): an unknown caller gets an HTTP/2 connection,
		// which costs much, for one request only.
		res.Header.Set("Connection", "close")
	}
	if len(res.Trailer) > 0 && x.request.ProtoMajor == 1 && x.request.Method != http.MethodHead {
		// HTTP/2 allows a length and trailers together. HTTP/1.1 has trailers in chunked bodies only.
		res.Header.Del("Content-Length")
	}
	for name, values := range x.added {
		res.Header[name] = append(res.Header[name], values...)
	}
	// nil keeps net/http from making up a header that the API server did not send.
	for _, name := range []string{"Content-Type", "Date"} {
		if _, ok := res.Header[name]; !ok {
			x.w.Header()[name] = nil
		}
	}
}

// fail ends an exchange without a usable answer of the API server. It answers the caller itself, if somebody can read the
// answer.
func (x *exchange) fail(w http.ResponseWriter, _ *http.Request, err error) {
	r, bodyErr := x.request, x.body.failure()
	bodyIsLate := errors.Is(bodyErr, os.ErrDeadlineExceeded) // net/http then ends the context, too
	// The client has gone, or listproxy has ended its request, which must not be repeated.
	isGone := r.Context().Err() != nil && !bodyIsLate
	if isGone || x.switched { // a connection that has switched no longer speaks HTTP
		x.report(isGone, err.Error())
		panic(http.ErrAbortHandler)
	}
	clear(w.Header())
	maps.Copy(w.Header(), x.added)
	if bodyErr != nil || !x.rewritten {
		x.report(true, err.Error())
		w.Header().Set("Connection", "close")
		if bodyIsLate {
			noteRefusal(w, r, observe.RefusedMalformed)
			kubehttp.WriteTimeout(w, r)
			return
		}
		refuse(w, r, observe.RefusedMalformed,
			"The request's header or body is malformed or ended early, so it could not be forwarded.")
		return
	}
	x.report(false, err.Error())
	if errors.Is(err, errNotKept) {
		kubehttp.WriteTooManyRequests(w, r)
		return
	}
	message, mayRepeat := failureMessage(err, x.mayHaveArrived, x.isRead())
	kubehttp.WriteUnavailable(w, r, message, mayRepeat)
}

// failureMessage returns the message to a client whose request has no usable answer. mayRepeat reports whether the client
// may repeat the request.
func failureMessage(err error, mayHaveArrived, isRead bool) (message string, mayRepeat bool) {
	switch {
	case errors.Is(err, errAccountRefused):
		return "The Kubernetes API server refuses listproxy's own account (401), with which listproxy sends requests of " +
			"callers who log in with a client certificate. Nothing was carried out. The cause is in listproxy's log.", true
	case !mayHaveArrived:
		return "listproxy could not reach the Kubernetes API server. Nothing was carried out. The cause is in " +
			"listproxy's log; check that the API server is up and that listproxy's client configuration has its " +
			"address and CA.", true
	case isRead:
		return "listproxy got no answer from the Kubernetes API server. The cause is in listproxy's log.", true
	}
	return "listproxy got no answer from the Kubernetes API server. The request may or may not have been carried out: " +
		"read the object before trying again. The cause is in listproxy's log.", false
}

// Write implements [io.Writer] for the log of ReverseProxy, which says that an answer broke off.
func (x *exchange) Write(line []byte) (int, error) {
	x.report(x.request.Context().Err() != nil, strings.TrimSpace(string(line)))
	return len(line), nil
}

// report logs that an exchange ended early: at debug level if the caller is the cause, otherwise as a warning, whose
// number is limited.
func (x *exchange) report(byCaller bool, cause string) {
	log := func(level slog.Level) {
		x.forwarder.log.Log(x.request.Context(), level, "a forwarded request ended early",
			"method", x.request.Method, "target", kubehttp.Describe(x.request), "cause", cause)
	}
	if byCaller {
		log(slog.LevelDebug)
		return
	}
	x.forwarder.logLimiter.Do(func() { log(slog.LevelWarn) })
}
