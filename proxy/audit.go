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
// audit waits twice: for the names of the users, and for the write. Between the two it calls [lastCheck], since the log should
// have no request that is forwarded in the end. The caller of audit must call lastCheck again before it writes the answer.
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

// findUsers returns the caller's own user, and the user whom the caller impersonates. The second is nil if the caller
// impersonates nobody. findUsers asks kube-apiserver for both (SelfSubjectReview), except for a user whose certificate
// listproxy has verified.
func (h *Handler) findUsers(ctx context.Context, caller *auth.Caller) (callerUser, impersonatedUser user.Info, err error) {
	if verified := caller.Identity.VerifiedUser(); verified != nil {
		return verified, nil, nil // a caller with a certificate cannot impersonate
	}
	callerAlone := *caller
	callerAlone.Identity = caller.Identity.Impersonator() // leaves out the user in the Impersonate-* headers, if there are any
	callerUser, err = h.WhoAmI.User(ctx, &callerAlone)
	if err == nil && caller.Identity.ImpersonatedUser() != nil {
		impersonatedUser, err = h.WhoAmI.User(ctx, caller)
	}
	return callerUser, impersonatedUser, err
}
