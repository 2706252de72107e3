package authn

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/uuid"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/listproxy/listproxy/proxy/kubehttp"
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
		refusal.Write(w, httptest.NewRequest(http.MethodGet, path, http.NoBody))
		if w.Code != http.StatusForbidden || w.Header().Get("Content-Type") != want.contentType || !strings.Contains(w.Body.String(), want.body) {
			t.Errorf("%s: %d, %s: %s", path, w.Code, w.Header().Get("Content-Type"), w.Body)
		}
	}
}

// TestRefusedCertificateKeepsNoHTTP2Connection: as with kube-apiserver's own 401.
func TestRefusedCertificateKeepsNoHTTP2Connection(t *testing.T) {
	for code, closes := range map[int]bool{http.StatusUnauthorized: true, http.StatusForbidden: false} {
		for _, major := range []int{1, 2} {
			r, w := httptest.NewRequest(http.MethodGet, "/api/v1/pods", http.NoBody), httptest.NewRecorder()
			r.ProtoMajor = major
			(&Refusal{code, metav1.StatusReasonUnauthorized, "No."}).Write(w, r)
			if got := w.Header().Get("Connection") == "close"; got != (closes && major == 2) {
				t.Errorf("%d over HTTP/%d closes the connection: %t", code, major, got)
			}
		}
	}
}

// TestRefusalHasAuditID as every answer of kube-apiserver's: the caller's own, or a new one.
func TestRefusalHasAuditID(t *testing.T) {
	refusal := &Refusal{http.StatusUnauthorized, metav1.StatusReasonUnauthorized, "No."}
	for name, answer := range map[string]func(http.ResponseWriter, *http.Request){
		"refusal": refusal.Write,
		"429":     kubehttp.WriteTooManyRequests,
		"a Status": func(w http.ResponseWriter, r *http.Request) {
			kubehttp.WriteStatus(w, r, http.StatusBadRequest, metav1.StatusReasonBadRequest, "No.")
		},
	} {
		for _, path := range []string{"/api", "/version"} {
			of := func(own string) []string {
				r := httptest.NewRequest(http.MethodGet, path, http.NoBody)
				if own != "" {
					r.Header.Set("Audit-Id", own)
				}
				w := httptest.NewRecorder()
				answer(w, r)
				return w.Header()["Audit-Id"]
			}
			if got := of("mine"); len(got) != 1 || got[0] != "mine" {
				t.Errorf("%s, %s: %q is not the caller's own", name, path, got)
			}
			one, other := of(""), of("")
			if len(one) != 1 || len(other) != 1 || uuid.Validate(one[0]) != nil || one[0] == other[0] {
				t.Errorf("%s, %s: %q and %q are not new", name, path, one, other)
			}
		}
	}
}
