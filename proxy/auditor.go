package proxy

import (
	"net/http"

	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/listproxy/listproxy/policy"
	"github.com/listproxy/listproxy/proxy/audit"
	"github.com/listproxy/listproxy/proxy/authz"
)

// Auditor records in the audit log which lists are answered from memory, and who gets them. It is
// safe for concurrent use.
type Auditor struct {
	Log *audit.Log
	Who *authz.WhoAmI
}

// user returns the user that the log names as the caller. known is the caller's user if it has been
// asked for already, else nil.
func (a *Auditor) user(r *http.Request, who caller, known user.Info) (user.Info, error) {
	if impersonated := who.identity.Impersonated(); impersonated != nil {
		return impersonated, nil
	}
	if known != nil {
		return known, nil
	}
	return a.Who.User(r.Context(), who.identity, who.share)
}

// concludingAudit returns what writes the event for the end of a watch that was answered from
// memory. If the log cannot be written then, it has only the watch's beginning. kube-apiserver is
// not asked who the caller is: a has the user since [Handler.announce], and the client may have gone.
func (h *Handler) concludingAudit(r *http.Request, who caller, list policy.Request, a answer, said audit.Answer) func(*watchStream) {
	return func(s *watchStream) {
		said.Started, said.Items, said.Bytes, said.Broken = false, s.events, s.Bytes, s.err != nil || r.Context().Err() != nil
		if entry, why := h.announce(r, who, list, &a); why == "" {
			entry.Complete(said)
		}
	}
}
