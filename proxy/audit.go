package proxy

import (
	"context"
	"net/http"

	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/listproxy/listproxy/policy/reason"
	"github.com/listproxy/listproxy/proxy/auth"
	"github.com/listproxy/listproxy/proxy/observe"
)

// audit writes an answer from memory to the audit log, if there is one. It returns the reason to forward the request, or None. audit
// may wait, so [lastCheck] must be called afterwards.
func (h *Handler) audit(r *http.Request, d *decision, b *body) reason.Reason {
	if h.AuditLog == nil {
		return reason.None
	}
	sender, impersonated, err := h.findUsers(r.Context(), &d.caller.Caller)
	if err == nil {
		// The log should have no request that is forwarded in the end, and findUsers may have waited.
		if why := lastCheck(d, h.currentConditions(d)); why != reason.None {
			return why
		}
		err = h.AuditLog.Write(observe.AuditEvent{
			Request: r, Asked: d.asked, Caller: sender, Received: observe.RecordOf(r.Context()).ReceivedAt(),
			ID: b.auditID, Semantics: d.Semantics, Representation: d.key.Representation,
			Revision: d.state.Revision, Items: len(b.objects), Impersonated: impersonated,
		})
	}
	if err != nil {
		h.LogLimiter.Do(func() { h.Log.Warn("an answer from memory could not be audited", "error", err) })
		return reason.Audit
	}
	return reason.None
}

// findUsers returns the caller's user, and the user whom the caller impersonates, if any.
func (h *Handler) findUsers(ctx context.Context, who *auth.Caller) (sender, impersonated user.Info, err error) {
	if verified := who.Identity.VerifiedUser(); verified != nil {
		return verified, nil, nil // a caller with a certificate cannot impersonate
	}
	impersonator := *who
	impersonator.Identity = who.Identity.Impersonator()
	sender, err = h.WhoAmI.User(ctx, &impersonator)
	if err == nil && who.Identity.ImpersonatedUser() != nil {
		impersonated, err = h.WhoAmI.User(ctx, who)
	}
	return sender, impersonated, err
}
