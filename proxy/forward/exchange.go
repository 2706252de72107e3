package forward

import (
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptrace"
	"net/http/httputil"
	"os"
	"strings"
	"time"

	flowcontrol "k8s.io/api/flowcontrol/v1"

	"github.com/listproxy/listproxy/proxy/auth"
	"github.com/listproxy/listproxy/proxy/kubehttp"
	"github.com/listproxy/listproxy/proxy/observe"
)

// exchange is one forwarded request and its answer. A [httputil.ReverseProxy] does the work, and calls the exchange:
//
//	rewrite             makes the request to the API server
//	RoundTrip           sends the request
//	modifyResponse      checks and adapts the answer
//	fail                answers the caller if there is no usable answer
//	breakOffLog.Write   logs that an answer has broken off
//
// A request that the API server has certainly not looked at is sent again, on up to eight connections in all (maxAttempts). A
// read without a body that may have arrived is sent once more.
type exchange struct {
	forwarder *Forwarder
	w         http.ResponseWriter // for the answer to the caller
	request   *http.Request       // as it came from the caller
	asked     *kubehttp.Request   // what request asks for
	caller    auth.Identity
	body      *upload
	ownHeader http.Header     // the headers that listproxy's filters have set for the answer
	watch     *forwardedWatch // nil if the request is not a watch

	isWellFormed   bool // ReverseProxy has found no error in the request's header
	attempts       int  // the number of connections on which the request was sent, one after the other
	mayHaveArrived bool // the API server may have read the request, so a write may have been carried out
	switched       bool // the API server has agreed to the upgrade
}

// newExchange returns the exchange of a caller's request. It moves the headers of w to ownHeader, since w would send them with
// the first 1xx answer. adaptHeader and fail add them to the final answer.
func newExchange(f *Forwarder, w http.ResponseWriter, r *http.Request, caller auth.Identity, body *upload) *exchange {
	ownHeader := w.Header().Clone()
	clear(w.Header())
	return &exchange{forwarder: f, w: w, request: r, asked: kubehttp.RequestOf(r), caller: caller, body: body, ownHeader: ownHeader}
}

// reverseProxy returns the ReverseProxy of the exchange.
func (x *exchange) reverseProxy(transport http.RoundTripper, flushInterval time.Duration) httputil.ReverseProxy {
	return httputil.ReverseProxy{
		Rewrite:        x.rewrite,
		Transport:      transport,
		FlushInterval:  flushInterval,
		ErrorLog:       log.New(breakOffLog{x}, "", 0),
		BufferPool:     &x.forwarder.buffers,
		ModifyResponse: x.modifyResponse,
		ErrorHandler:   x.fail,
	}
}

// rewrite makes the request to the API server. ReverseProxy has removed the hop-by-hop headers before, so it does not remove
// what rewrite sets.
func (x *exchange) rewrite(pr *httputil.ProxyRequest) {
	x.isWellFormed = true // ReverseProxy does not call rewrite for other requests
	pr.Out.URL = upstreamURL(x.forwarder.base, pr.In.RequestURI)
	pr.Out.Host = x.forwarder.base.Host
	pr.Out.Trailer = pr.In.Trailer // not a copy, since net/http fills this map when it has read the body
	if x.caller.VerifiedUser() != nil {
		pr.Out.Trailer = nil // trailers are not checked, and must not go with listproxy's credentials
	}
	if pr.Out.Body != nil {
		pr.Out.Body, _ = x.body.newAttempt() // the first call returns no error
		pr.Out.GetBody = x.body.newAttempt
	}
	adaptRequestHeader(pr.Out.Header, x.caller, pr.In.RemoteAddr)
}

// maxAttempts bounds the number of connections on which a request is sent. The transport itself would try for ever if each
// connection were closed (GOAWAY) as soon as the request comes.
const maxAttempts = 8

var errTooManyAttempts = fmt.Errorf("%d connections were closed when the request came", maxAttempts)

// countAttempts returns a child of ctx for the request to the API server. The transport calls the two functions in this child
// at each attempt, and they update x.attempts and x.mayHaveArrived. After more than maxAttempts attempts, they call cancel,
// which must cancel ctx. For example, a write is sent on two connections, and the first one ends with a GOAWAY:
//
//	GetConn   the first attempt begins                          mayHaveArrived is false
//	GotConn   the request is sent                               mayHaveArrived is true
//	GetConn   after the GOAWAY, the second attempt begins       mayHaveArrived is false again
//	GotConn   the request is sent again                         mayHaveArrived is true
//
// Another attempt shows that the request has not arrived, since net/http repeats a write only then. net/http also repeats reads
// that may have arrived, but a read changes nothing. There is one exception: after too many attempts, cancel has broken off the
// last attempt, whose request may have arrived.
func (x *exchange) countAttempts(ctx context.Context, cancel context.CancelFunc) context.Context {
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GetConn: func(string) { x.mayHaveArrived = x.tooManyAttempts() },
		GotConn: func(httptrace.GotConnInfo) {
			x.mayHaveArrived = true
			x.attempts++
			if x.tooManyAttempts() {
				cancel()
			}
		},
	})
}

// tooManyAttempts reports whether the request was sent on more than maxAttempts connections.
func (x *exchange) tooManyAttempts() bool { return x.attempts > maxAttempts }

// RoundTrip sends the request. If the request is a read, and the connection ends before the answer, RoundTrip sends it once
// more, as a client with a connection of its own would do.
func (x *exchange) RoundTrip(r *http.Request) (*http.Response, error) {
	transport := x.forwarder.upstream.RoundTripper(x.caller, x.asked)
	res, err := transport.RoundTrip(r)
	brokeOff := err != nil && x.mayHaveArrived && r.Context().Err() == nil
	if brokeOff && x.isRead() && r.Body == nil {
		res, err = transport.RoundTrip(r)
	}
	if err != nil && x.tooManyAttempts() {
		err = errTooManyAttempts
	}
	return res, err
}

// isRead reports whether the request changes nothing at the API server, so that it may be repeated.
func (x *exchange) isRead() bool {
	return x.asked.Upgrade == "" && (x.request.Method == http.MethodGet || x.request.Method == http.MethodHead)
}

// errAccountRefused means that kube-apiserver has refused listproxy's own credentials, with which a request for an impersonated
// user was sent.
var errAccountRefused = errors.New("kube-apiserver refuses listproxy's own account (401)")

// modifyResponse checks and adapts the API server's final answer before its header is sent. A 101 is a final answer.
func (x *exchange) modifyResponse(res *http.Response) error {
	// kube-apiserver's own 401 is about the request's credentials. A 401 of a backend, such as a Service, says nothing about
	// the caller.
	is401 := res.StatusCode == http.StatusUnauthorized
	backend401 := is401 && x.mayBeOfBackend(res)
	apiserver401 := is401 && !backend401
	if apiserver401 && x.caller.VerifiedUser() != nil {
		return errAccountRefused
	}
	if err := x.finishUpgrade(res); err != nil {
		return err
	}
	if !backend401 {
		x.forwarder.upstream.RecordAnswer(x.caller, x.asked.Upgrade != "", x.request.Method, res.StatusCode)
	}
	if x.watch != nil {
		if err := x.watch.setResponse(res); err != nil {
			return err
		}
	}
	x.adaptHeader(res, apiserver401)
	if x.switched { // ReverseProxy will hijack the connection, so nothing else records the answer
		observe.RecordOf(x.request.Context()).SetHijackedAnswer(http.StatusSwitchingProtocols, 0)
	}
	return nil
}

// finishUpgrade prepares the answer to a request that asked for an upgrade: a 101, or a refusal. It returns an error if the API
// server has switched to a protocol for which the request did not ask. It leaves all other answers as they are.
func (x *exchange) finishUpgrade(res *http.Response) error {
	switch {
	case res.StatusCode == http.StatusSwitchingProtocols:
		protocol := kubehttp.UpgradeProtocol(res.Header)
		if x.asked.Upgrade == "" || !strings.EqualFold(protocol, x.asked.Upgrade) {
			return fmt.Errorf("it switched to protocol %q when %q was asked for", protocol, x.asked.Upgrade)
		}
		x.switched = true
		// A 101 must not have a Content-Length (RFC 9110, 8.6). ReverseProxy writes the 101 with res.Write, which adds one if
		// res.Request is a POST.
		res.Request = nil
	case x.asked.Upgrade != "":
		// The client may already be speaking the other protocol, which neither side may read as a second request.
		res.Header.Set("Connection", "close")
	}
	return nil
}

// mayBeOfBackend reports whether a 401 may come from a backend: a pod, a Service, a kubelet or an aggregated API server. There
// are two signs: the request goes through kube-apiserver's own proxy, or the answer names a FlowSchema. kube-apiserver names
// one in every answer to a caller whom it knows (k8s.io/apiserver, WithPriorityAndFairness), so its own 401 names none.
func (x *exchange) mayBeOfBackend(res *http.Response) bool {
	info := x.asked.Info
	return info.Subresource == "proxy" || info.Verb == "proxy" ||
		res.Header.Get(flowcontrol.ResponseHeaderMatchedFlowSchemaUID) != ""
}

// adaptHeader adapts the answer's header to the caller's connection, and adds listproxy's own headers. apiserver401 means that
// the answer is kube-apiserver's own 401.
func (x *exchange) adaptHeader(res *http.Response, apiserver401 bool) {
	hasNoCredentials := x.caller.VerifiedUser() == nil && !x.caller.HasToken()
	callerIsUnknown := apiserver401 || hasNoCredentials
	if x.request.ProtoMajor == 2 && callerIsUnknown && !x.asked.LongRunning {
		// HTTP/2 connections are expensive. An unknown caller gets one for a single request, as at kube-apiserver
		// (UnauthenticatedHTTP2DOSMitigation).
		res.Header.Set("Connection", "close")
	}
	if len(res.Trailer) > 0 && x.request.ProtoMajor == 1 && x.request.Method != http.MethodHead {
		// HTTP/2 allows a length together with trailers. HTTP/1.1 has trailers in chunked bodies only.
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

// fail is the proxy's [httputil.ReverseProxy.ErrorHandler]. It ends an exchange that has no usable answer:
//
//	the caller has left, or the protocol was switched   panic with [http.ErrAbortHandler]
//	the request is malformed                            400, or 504 if its body was late
//	its body is gone, so it cannot be sent again        429 with Retry-After
//	any other failure                                   503, with Retry-After if it is certain that no write was carried out
func (x *exchange) fail(w http.ResponseWriter, _ *http.Request, err error) {
	bodyErr := x.body.failure()
	bodyIsLate := errors.Is(bodyErr, os.ErrDeadlineExceeded)
	// A canceled context means that the caller has left, except after a late body: net/http then cancels the context itself.
	hasLeft := x.request.Context().Err() != nil && !bodyIsLate
	isMalformed := !x.switched && (bodyErr != nil || !x.isWellFormed)
	x.logEnd(hasLeft || isMalformed, err.Error())
	if hasLeft || x.switched {
		panic(http.ErrAbortHandler)
	}
	clear(w.Header())
	maps.Copy(w.Header(), x.ownHeader)
	switch {
	case isMalformed:
		refuseMalformed(w, x.request, bodyIsLate)
	case errors.Is(err, errNotKept):
		kubehttp.WriteTooManyRequests(w, x.request)
	default:
		message, mayRepeat := x.failureMessage(err)
		kubehttp.WriteUnavailable(w, x.request, message, mayRepeat)
	}
}

// refuseMalformed answers a request whose header or body could not be read as a whole. isLate means that the body did not come
// in time.
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

// failureMessage returns the message of a 503, and whether the client may repeat the request.
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

// breakOffLog is the log of the ReverseProxy, which writes a line when an answer breaks off.
type breakOffLog struct{ exchange *exchange }

// Write implements [io.Writer].
func (l breakOffLog) Write(line []byte) (int, error) {
	hasLeft := l.exchange.request.Context().Err() != nil
	l.exchange.logEnd(hasLeft, strings.TrimSpace(string(line)))
	return len(line), nil
}

// logEnd logs that the exchange has ended early. isExpected means that the caller has left, or that the request is malformed.
// That is logged as a debug message, and any other end as a warning. The number of warnings is limited.
func (x *exchange) logEnd(isExpected bool, cause string) {
	logAt := func(level slog.Level) {
		x.forwarder.log.Log(x.request.Context(), level, "a forwarded request ended early",
			"method", x.request.Method, "target", kubehttp.LoggedTarget(x.request), "cause", cause)
	}
	if isExpected {
		logAt(slog.LevelDebug)
		return
	}
	x.forwarder.logLimiter.Do(func() { logAt(slog.LevelWarn) })
}
