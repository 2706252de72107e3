package kubehttp

import (
	"net/http"

	"github.com/google/uuid"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
)

// AuditID returns the Audit-Id for the answer to r: r's own, or a new one at each call. kube-apiserver gives every answer
// an Audit-Id, even a 401 and a 429 (k8s.io/apiserver, WithAuditInit).
func AuditID(r *http.Request) string {
	if id := r.Header.Get(auditv1.HeaderAuditID); id != "" {
		return id
	}
	return uuid.NewString()
}

// SetAuditID sets the Audit-Id of the answer to r to the result of [AuditID].
func SetAuditID(h http.Header, r *http.Request) { h.Set(auditv1.HeaderAuditID, AuditID(r)) }
