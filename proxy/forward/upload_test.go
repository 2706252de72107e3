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

// TestUploadsThatAreKept can be read from their beginning again and again; others until somebody has
// begun to read.
func TestUploadsThatAreKept(t *testing.T) {
	for name, test := range map[string]struct {
		size    int
		unknown bool // how long it is
		expects bool // a 100 before it is sent
		full    bool // there is no room
		kept    bool
	}{
		"small":             {size: 1, kept: true},
		"the longest":       {size: maxKept, kept: true},
		"too long":          {size: maxKept + 1},
		"of unknown length": {size: 1, unknown: true},
		"no room":           {size: 1, full: true},
		"expects a 100":     {size: 1, expects: true},
	} {
		t.Run(name, func(t *testing.T) {
			want := bytes.Repeat([]byte("x"), test.size)
			r := httptest.NewRequest(http.MethodPut, "/x", bytes.NewReader(want))
			if test.unknown {
				r.ContentLength = -1
			}
			if test.expects {
				r.Header.Set("Expect", "100-continue")
			}
			taken := int64(0)
			u, free := newUpload(r, func(bytes int64) (func(), bool) {
				if test.full {
					return nil, false
				}
				taken += bytes
				return func() { taken -= bytes }, true
			})
			if (taken > 0) != test.kept || taken > 0 && taken != int64(test.size) {
				t.Errorf("it takes %d bytes", taken)
			}
			unread := openReader(t, u)
			_ = unread.Close() // as a transport does whose connection cannot be used
			got, err := io.ReadAll(openReader(t, u))
			if err != nil || !bytes.Equal(got, want) || u.failure() != nil {
				t.Errorf("%d bytes, %v, failure %v", len(got), err, u.failure())
			}
			again, err := u.reader()
			if !test.kept && !errors.Is(err, errNotKept) {
				t.Errorf("it was not kept: %v", err)
			}
			if test.kept {
				if got, err := io.ReadAll(again); err != nil || !bytes.Equal(got, want) {
					t.Errorf("again: %d bytes, %v", len(got), err)
				}
			}
			free()
			if taken != 0 {
				t.Errorf("%d bytes are not given back", taken)
			}
		})
	}
}

// TestUploadCloseEndsAWaitingRead, and that is no failure of the caller's.
func TestUploadCloseEndsAWaitingRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		body, _ := io.Pipe()
		u := &upload{body: body}
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
