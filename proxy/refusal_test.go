package proxy

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestRefusalIsReadable: a Status, but for where client-go decodes none.
func TestRefusalIsReadable(t *testing.T) {
	refusal := &Refusal{http.StatusForbidden, metav1.StatusReasonForbidden, "Do something else."}
	for path, want := range map[string]struct{ contentType, body string }{
		"/api":         {"text/plain; charset=utf-8", "Do something else.\n"},
		"/apis":        {"text/plain; charset=utf-8", "Do something else.\n"},
		"/api/v1/pods": {"application/json", `"message":"Do something else."`},
		"/version":     {"application/json", `"message":"Do something else."`},
	} {
		w := httptest.NewRecorder()
		refusal.write(w, httptest.NewRequest(http.MethodGet, path, http.NoBody))
		if w.Code != http.StatusForbidden || w.Header().Get("Content-Type") != want.contentType || !strings.Contains(w.Body.String(), want.body) {
			t.Errorf("%s: %d, %s: %s", path, w.Code, w.Header().Get("Content-Type"), w.Body)
		}
	}
}
