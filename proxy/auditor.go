package proxy

import (
	"net/http"

	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/listproxy/listproxy/policy"
	"github.com/listproxy/listproxy/proxy/audit"
	"github.com/listproxy/listproxy/proxy/authz"
)

// Auditor takes down which lists are answered from memory, and who gets them. It is safe for
// concurrent use.
type Auditor struct {
	Log *audit.Log
	Who *authz.WhoAmI
}

// user is whom the log says a caller is. known is who the caller is, nil if nobody has asked yet.
func (a *Auditor) user(r *http.Request, who caller, known user.Info) (user.Info, error) {
	if stated := who.identity.Impersonated(); stated != nil {
		return stated, nil
	}
	if known != nil {
		return known, nil
	}
	return a.Who.User(r.Context(), who.identity, who.share)
}

// concludeAudit writes that a watch has ended which was answered from memory. If the log cannot be
// written now, only its beginning is there. Nobody is asked who the caller is: the answer knows
// since [Handler.announce], and the client may have gone.
func (h *Handler) concludeAudit(r *http.Request, who caller, list policy.Request, a *answer, said audit.Answer) {
	if entry, why := h.announce(r, who, list, a); why == "" {
		entry.Complete(said)
	}
}
