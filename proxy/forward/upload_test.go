package forward

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/listproxy/listproxy/proxy/kubehttp"
	"github.com/listproxy/listproxy/proxy/serve"
	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/proxytest"
)

func openReader(t *testing.T, u *upload) io.ReadCloser {
	t.Helper()
	r, err := u.reader()
	expect.NoError(t, err)
	return r
}

// TestUploadCloseEndsAWaitingRead, and that is no failure of the caller's. Before anything was read, it ends
// nothing.
func TestUploadCloseEndsAWaitingRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		body, _ := io.Pipe()
		u := &upload{body: body}
		_ = openReader(t, u).Close() // as a transport does whose connection cannot be used
		waiting := openReader(t, u)
		ended := make(chan error)
		go func() {
			_, err := waiting.Read(make([]byte, 10))
			ended <- err
		}()
		synctest.Wait()
		_ = waiting.Close()
		if err := <-ended; err == nil || u.failure() != nil {
			t.Errorf("got %v, failure %v", err, u.failure())
		}
	})
}

// TestUploadFailure: what came of a body before it broke is sent, and why it broke is known.
func TestUploadFailure(t *testing.T) {
	broken := errors.New("broken")
	for _, length := range []int64{-1, 4} {
		r := httptest.NewRequest(http.MethodPut, "/x", io.MultiReader(bytes.NewReader([]byte("abc")), iotest.ErrReader(broken)))
		r.ContentLength = length
		u, _ := newUpload(r, func(int64) (func(), bool) { return func() {}, true })
		got, _ := io.ReadAll(openReader(t, u))
		if string(got) != "abc" || !errors.Is(u.failure(), broken) {
			t.Errorf("announced %d: got %q, failure %v", length, got, u.failure())
		}
	}
}

// TestSlowBody: a body that takes too long gets what kube-apiserver says then. (Over HTTP/1.1 net/http ends
// what is passed on at the same time, so there may be no answer.)
func TestSlowBody(t *testing.T) {
	upstream := func(_ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) }
	for _, test := range []struct {
		http2  bool
		length int64
	}{{false, 10}, {true, 10}, {true, -1}} {
		forwarder := newForwarder(t, proxytest.StartUpstream(t, true, upstream).Config())
		front := startProxy(t, kubehttp.WithRequestInfo(serve.LimitBodies(forwarder, 100*time.Millisecond)), test.http2)
		body, stuck := io.Pipe()
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, front.URL, body)
		expect.NoError(t, err)
		r.ContentLength = test.length
		go func() { _, _ = io.WriteString(stuck, "abc") }()
		proxytest.AssertStatus(t, proxytest.Do(t, front.Client(), r), http.StatusGatewayTimeout, metav1.StatusReasonTimeout)
		_ = stuck.Close()
	}
}
