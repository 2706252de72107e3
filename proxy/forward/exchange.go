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

// exchange forwards one request. rewrite, RoundTrip, modifyResponse, fail and Write are hooks of its
// [httputil.ReverseProxy]. All but Write run in the goroutine of the proxy.
type exchange struct {
	forwarder *Forwarder
	w         http.ResponseWriter
	request   *http.Request // as it came from the caller
	caller    auth.Identity
	body      *upload
	ownHeader http.Header // the headers that listproxy's filters have set for the answer
	upgrade   string      // the protocol that the caller asks for, or ""
	watch     *openWatch  // nil if the request is not a watch
	transport http.RoundTripper

	// rewritten reports whether rewrite has begun to make the request to the API server.
	rewritten bool
	// attempts is the number of connections on which the request was sent.
	attempts int
	// mayHaveArrived reports whether the request may have arrived at the API server.
	mayHaveArrived bool
	// switched reports whether the API server has agreed to the upgrade.
	switched bool
}

// newExchange returns the exchange of a caller's request. It takes the headers out of w, since a 1xx answer would send
// them, and the final answer would then lack them. adaptHeader and fail put them back.
func newExchange(f *Forwarder, w http.ResponseWriter, r *http.Request, caller auth.Identity, body *upload) *exchange {
	ownHeader := w.Header().Clone()
	clear(w.Header())
	asked := kubehttp.RequestOf(r)
	return &exchange{
		forwarder: f, w: w, request: r, caller: caller, body: body,
		ownHeader: ownHeader, upgrade: asked.Upgrade, transport: f.upstream.RoundTripper(caller, asked),
	}
}

// rewrite makes the request to the API server. ReverseProxy has removed the hop-by-hop headers before, so it cannot remove a
// header that rewrite sets.
func (x *exchange) rewrite(pr *httputil.ProxyRequest) {
	x.rewritten = true
	pr.Out.URL = upstreamURL(x.forwarder.base, pr.In.RequestURI)
	pr.Out.Host = x.forwarder.base.Host
	// net/http fills the Trailer of the caller's request when it has read the body. ReverseProxy's copy would stay empty.
	pr.Out.Trailer = pr.In.Trailer
	if x.caller.VerifiedUser() != nil {
		pr.Out.Trailer = nil // trailers are not checked, and must not go with listproxy's credentials
	}
	if pr.Out.Body != nil {
		pr.Out.Body, _ = x.body.reader() // the first call returns no error
		pr.Out.GetBody = x.body.reader
	}
	adaptRequestHeader(pr.Out.Header, x.caller, pr.In.RemoteAddr)
}

// maxAttempts is the largest number of connections on which a request is sent. If each connection is closed (GOAWAY) as
// soon as the request comes, the transport itself would try for ever.
const maxAttempts = 8

var errTooManyAttempts = fmt.Errorf("%d connections were closed when the request came", maxAttempts)

// withTrace returns a context for the request, through which the transport reports its progress. If the request would be sent
// more than maxAttempts times, withTrace calls end, which must end the context.
func (x *exchange) withTrace(ctx context.Context, end context.CancelFunc) context.Context {
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		// The transport looks for a connection: for the first time, or again after an attempt that the API server has not
		// looked at, or for another attempt of a read. So nothing was carried out yet. But if end has broken the last attempt
		// off, that attempt may have been carried out.
		GetConn: func(string) { x.mayHaveArrived = x.attempts > maxAttempts },
		// The transport has a connection. From now on the request may arrive.
		GotConn: func(httptrace.GotConnInfo) {
			x.mayHaveArrived = true
			if x.attempts++; x.attempts > maxAttempts {
				end()
			}
		},
	})
}

// RoundTrip sends the request. If it is a read, and the connection ends before the answer, RoundTrip sends it once more, as a
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

// isRead reports whether the request changes nothing at the API server, so that it may be repeated.
func (x *exchange) isRead() bool {
	return x.upgrade == "" && (x.request.Method == http.MethodGet || x.request.Method == http.MethodHead)
}

// errAccountRefused means that a request for an impersonated user got a 401, which is about listproxy's own credentials.
var errAccountRefused = errors.New("kube-apiserver refuses listproxy's own account (401)")

// modifyResponse checks and adapts the final answer, 101 included, before its header is sent.
func (x *exchange) modifyResponse(res *http.Response) error {
	is401 := res.StatusCode == http.StatusUnauthorized
	refusesCredentials := is401 && !x.mayBeOfBackend(res)
	switch {
	case refusesCredentials && x.caller.VerifiedUser() != nil:
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
	if refusesCredentials || !is401 { // a backend's 401 says nothing about the caller
		x.forwarder.upstream.RecordAnswer(x.caller, x.upgrade != "", x.request.Method, res.StatusCode)
	}
	if x.watch != nil {
		if err := x.watch.takeOver(res); err != nil {
			return err
		}
	}
	x.adaptHeader(res, refusesCredentials)
	if x.switched {
		observe.RecordOf(x.request.Context()).SetSent(http.StatusSwitchingProtocols, 0) // ReverseProxy hijacks the connection
	}
	return nil
}

// mayBeOfBackend reports whether a 401 may come from a backend (a pod, a Service, a kubelet or an aggregated API server) and
// not from kube-apiserver itself. kube-apiserver names a FlowSchema in its answer once it knows the caller (k8s.io/apiserver,
// WithPriorityAndFairness), so its own 401 has no such header. To requests for a proxy, any 401 may come from a backend.
func (x *exchange) mayBeOfBackend(res *http.Response) bool {
	info := kubehttp.RequestOf(x.request).Info
	return info.Subresource == "proxy" || info.Verb == "proxy" ||
		res.Header.Get(flowcontrol.ResponseHeaderMatchedFlowSchemaUID) != ""
}

// adaptHeader adapts the answer's header to the caller's connection, and adds listproxy's own headers. refusesCredentials
// says that the answer is kube-apiserver's own 401.
func (x *exchange) adaptHeader(res *http.Response, refusesCredentials bool) {
	callerIsUnknown := refusesCredentials || x.caller.VerifiedUser() == nil && !x.caller.HasToken()
	if x.request.ProtoMajor == 2 && callerIsUnknown && !kubehttp.RequestOf(x.request).LongRunning {
		// As kube-apiserver does (UnauthenticatedHTTP2DOSMitigation): an unknown caller gets an HTTP/2 connection,
		// which costs much, for one request only.
		res.Header.Set("Connection", "close")
	}
	if len(res.Trailer) > 0 && x.request.ProtoMajor == 1 && x.request.Method != http.MethodHead {
		// HTTP/2 allows a length and trailers together. HTTP/1.1 has trailers in chunked bodies only.
		res.Header.Del("Content-Length")
	}
	for name, values := range x.ownHeader {
		res.Header[name] = append(res.Header[name], values...)
	}
	// nil keeps net/http from making up a header that the API server did not send.
	for _, name := range []string{"Content-Type", "Date"} {
		if _, ok := res.Header[name]; !ok {
			x.w.Header()[name] = nil
		}
	}
}

// fail ends an exchange that has no usable answer from the API server. It answers the caller itself, or panics with
// [http.ErrAbortHandler] if nobody can read an answer. Its parameters are those of [httputil.ReverseProxy.ErrorHandler].
func (x *exchange) fail(w http.ResponseWriter, _ *http.Request, err error) {
	r := x.request
	bodyErr := x.body.failure()
	bodyIsLate := errors.Is(bodyErr, os.ErrDeadlineExceeded) // in this case net/http has ended the context, too
	if r.Context().Err() != nil && !bodyIsLate {
		// The client has gone, or listproxy has ended the request: nobody reads an answer, or may repeat the request.
		x.logEndByCaller(err.Error())
		panic(http.ErrAbortHandler)
	}
	if x.switched { // the connection no longer speaks HTTP
		x.logEndByUpstream(err.Error())
		panic(http.ErrAbortHandler)
	}
	clear(w.Header())
	maps.Copy(w.Header(), x.ownHeader)
	if bodyErr != nil || !x.rewritten {
		x.logEndByCaller(err.Error())
		refuseMalformed(w, r, bodyIsLate)
		return
	}
	x.logEndByUpstream(err.Error())
	if errors.Is(err, errNotKept) {
		kubehttp.WriteTooManyRequests(w, r)
		return
	}
	message, mayRepeat := x.failureMessage(err)
	kubehttp.WriteUnavailable(w, r, message, mayRepeat)
}

// refuseMalformed answers a request whose header or body could not be read as a whole. isLate says that the body took too
// long.
func refuseMalformed(w http.ResponseWriter, r *http.Request, isLate bool) {
	w.Header().Set("Connection", "close")
	if isLate {
		recordRefusal(w, r, observe.RefusedMalformed)
		kubehttp.WriteTimeout(w, r)
		return
	}
	refuse(w, r, observe.RefusedMalformed,
		"The request's header or body is malformed or ended early, so it could not be forwarded.")
}

// failureMessage returns the message to a client whose request has no usable answer. mayRepeat reports whether the client
// may repeat the request.
func (x *exchange) failureMessage(err error) (message string, mayRepeat bool) {
	switch {
	case errors.Is(err, errAccountRefused):
		return "The Kubernetes API server refuses listproxy's own account (401), with which listproxy sends requests of " +
			"callers who log in with a client certificate. Nothing was carried out. The cause is in listproxy's log.", true
	case !x.mayHaveArrived:
		return "listproxy could not reach the Kubernetes API server. Nothing was carried out. The cause is in " +
			"listproxy's log; check that the API server is up and that listproxy's client configuration has its " +
			"address and CA.", true
	case x.isRead():
		return "listproxy got no answer from the Kubernetes API server. The cause is in listproxy's log.", true
	}
	return "listproxy got no answer from the Kubernetes API server. The request may or may not have been carried out: " +
		"read the object before trying again. The cause is in listproxy's log.", false
}

// Write implements [io.Writer] for the log of ReverseProxy. A line in it means that an answer broke off.
func (x *exchange) Write(line []byte) (int, error) {
	cause := strings.TrimSpace(string(line))
	if x.request.Context().Err() != nil {
		x.logEndByCaller(cause)
	} else {
		x.logEndByUpstream(cause)
	}
	return len(line), nil
}

// logEndByCaller logs that the caller, or the end of listproxy, has ended the exchange early.
func (x *exchange) logEndByCaller(cause string) { x.logEnd(slog.LevelDebug, cause) }

// logEndByUpstream logs that the API server has ended the exchange early. The number of such lines is limited.
func (x *exchange) logEndByUpstream(cause string) {
	x.forwarder.logLimiter.Do(func() { x.logEnd(slog.LevelWarn, cause) })
}

// logEnd logs that the exchange has ended early.
func (x *exchange) logEnd(level slog.Level, cause string) {
	x.forwarder.log.Log(x.request.Context(), level, "a forwarded request ended early",
		"method", x.request.Method, "target", kubehttp.LoggedTarget(x.request), "cause", cause)
}
