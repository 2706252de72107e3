package proxy

import (
	"context"
	"net/http"

	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/listproxy/listproxy/policy/reason"
	"github.com/listproxy/listproxy/proxy/auth"
	"github.com/listproxy/listproxy/proxy/observe"
)

// audit writes an answer from memory to the audit log, if there is one. It returns the reason to forward the request, or None.
//
// audit waits twice: for the users, and for the write. After the first wait it calls [lastCheck] itself, since the log should have
// no request that is forwarded in the end. After the second wait, the caller must call lastCheck.
func (h *Handler) audit(r *http.Request, d *decision, b *body) reason.Reason {
	if h.AuditLog == nil {
		return reason.None
	}
	callerUser, impersonatedUser, err := h.findUsers(r.Context(), &d.caller.Caller)
	if err == nil {
		if why := lastCheck(d, h.currentConditions(d)); why != reason.None {
			return why
		}
		err = h.AuditLog.Write(observe.AuditEvent{
			Request:        r,
			Asked:          d.asked,
			Caller:         callerUser,
			Impersonated:   impersonatedUser,
			Received:       observe.RecordOf(r.Context()).ReceivedAt(),
			ID:             b.auditID,
			Semantics:      d.Semantics,
			Representation: d.key.Representation,
			Revision:       d.state.Revision,
			Items:          len(b.objects),
		})
	}
	if err != nil {
		h.LogLimiter.Do(func() { h.Log.Warn("an answer from memory could not be audited", "error", err) })
		return reason.Audit
	}
	return reason.None
}

// findUsers returns the caller's own user, and the user whom the caller impersonates, or nil if it impersonates none. It asks
// kube-apiserver for both, except for a user whom listproxy has verified.
func (h *Handler) findUsers(ctx context.Context, who *auth.Caller) (callerUser, impersonatedUser user.Info, err error) {
	if verified := who.Identity.VerifiedUser(); verified != nil {
		return verified, nil, nil // a caller with a certificate cannot impersonate
	}
	callerAlone := *who // without the Impersonate-* headers, if there are any
	callerAlone.Identity = who.Identity.Impersonator()
	callerUser, err = h.WhoAmI.User(ctx, &callerAlone)
	if err == nil && who.Identity.ImpersonatedUser() != nil {
		impersonatedUser, err = h.WhoAmI.User(ctx, who)
	}
	return callerUser, impersonatedUser, err
}
