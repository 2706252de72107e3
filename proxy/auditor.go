package proxy

import (
	"net/http"
	"time"

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

// begin announces that a list is going to be answered from memory. After an error it must not be.
// known is who the caller is, nil if nobody has asked yet.
func (a *Auditor) begin(r *http.Request, who caller, known user.Info, list policy.Request, received time.Time) (*audit.Entry, error) {
	if stated := who.identity.Impersonated(); stated != nil {
		known = stated
	}
	if known == nil {
		var err error
		if known, err = a.Who.User(r.Context(), who.identity, who.share); err != nil {
			return nil, err
		}
	}
	return a.Log.Begin(r, list, known, received)
}

// concludeAudit writes that a watch has ended which was answered from memory. If the log cannot be
// written now, only its beginning is there.
func (h *Handler) concludeAudit(r *http.Request, who caller, list policy.Request, a *answer, said audit.Answer) {
	if entry, why := h.announce(r, who, list, a); why == "" {
		entry.Complete(said)
	}
}
