package proxy

import (
	"context"

	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/listproxy/listproxy/policy"
)

// getsAny says whether a list asks for the newest state, but the policy gives this caller any state
// instead; and who the caller is, if that was found out. The upstream is asked who the caller is
// only if the rule names callers, and only for callers whom it has accepted. If it does not say,
// the caller gets the newest state.
func (h *Handler) getsAny(
	ctx context.Context, who caller, outline policy.Outline,
) (user.Info, bool) {
	if !outline.Newest || len(outline.Rule.NewestAsAny) == 0 || !who.accepted {
		return nil, false
	}
	known, err := h.WhoAmI.Recognise(ctx, who.identity, who.share)
	if err != nil {
		h.rarely("a caller could not be recognised, for whom the policy may have a rule (newestAsAny)", err)
		return nil, false
	}
	return known, outline.Rule.GetsAny(known)
}
