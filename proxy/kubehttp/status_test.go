package kubehttp

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/listproxy/listproxy/test/expect"
)

// TestTooManyRequests: WriteTooManyRequests writes a 429 like kube-apiserver's, after which clients try again.
func TestTooManyRequests(t *testing.T) {
	w := httptest.NewRecorder()
	r := httptest.NewRequest(http.MethodPost, "/api/v1/namespaces/default/configmaps", nil)
	WriteTooManyRequests(w, r)
	expect.Same(t, http.StatusTooManyRequests, w.Code)
	expect.Same(t, "1", w.Header().Get("Retry-After"))
	expect.Same(t, "application/json", w.Header().Get("Content-Type"))
	expect.Same(t, `{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"Too many requests, please try again later.",`+
		`"reason":"TooManyRequests","details":{"retryAfterSeconds":1},"code":429}`+"\n", w.Body.String())
	if id, next := w.Header().Get("Audit-Id"), AuditID(r); id == "" || id == next {
		t.Errorf("got the Audit-Id %q, and %q for the next answer, want two", id, next)
	}
}
