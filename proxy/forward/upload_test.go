package forward

import (
	"io"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/listproxy/listproxy/proxy/kubehttp"
	"github.com/listproxy/listproxy/proxy/serve"
	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/proxytest"
)

// openReader returns a reader of u, for one attempt to send it.
func openReader(t *testing.T, u *upload) io.ReadCloser {
	t.Helper()
	r, err := u.newAttempt()
	expect.NoError(t, err)
	return r
}

// TestUploadCloseEndsAWaitingRead: the transport closes the body when it gives an attempt up. Close ends a Read that waits for
// the caller, and the caller is not blamed (failure returns nil). A Close before the first Read leaves the body open for the
// next attempt.
func TestUploadCloseEndsAWaitingRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		body, _ := io.Pipe()
		u := &upload{body: body}
		_ = openReader(t, u).Close() // as a transport does if its connection cannot be used
		waiting := openReader(t, u)
		ended := make(chan error)
		go func() {
			_, err := waiting.Read(make([]byte, 10))
			ended <- err
		}()
		synctest.Wait()
		_ = waiting.Close()
		if err := <-ended; err == nil || u.failure() != nil {
			t.Errorf("Read ended with %v, and the failure of the caller is %v; want an error, and no failure", err, u.failure())
		}
	})
}

// TestSlowBody: a request whose body takes too long gets kube-apiserver's 504. (A body of unknown length over HTTP/1.1 is left
// out: net/http may end the connection before the answer.)
func TestSlowBody(t *testing.T) {
	upstream := func(_ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) }
	for _, tt := range []struct {
		http2  bool
		length int64 // -1: unknown
	}{
		{http2: proxytest.HTTP1, length: 10},
		{http2: proxytest.HTTP2, length: 10},
		{http2: proxytest.HTTP2, length: -1},
	} {
		forwarder := newForwarder(t, proxytest.StartUpstream(t, proxytest.HTTP2, upstream).Config())
		front := startProxy(t, kubehttp.WithRequest(serve.WithBodyTimeout(forwarder, 100*time.Millisecond)), tt.http2)
		body, stuck := io.Pipe() // the client sends three bytes, and then nothing
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, front.URL, body)
		expect.NoError(t, err)
		r.ContentLength = tt.length
		go func() { _, _ = io.WriteString(stuck, "abc") }()
		proxytest.AssertStatus(t, proxytest.Do(t, front.Client(), r), http.StatusGatewayTimeout, metav1.StatusReasonTimeout)
		_ = stuck.Close()
	}
}
