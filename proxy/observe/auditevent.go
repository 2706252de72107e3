package observe

import (
	"context"
	"net/http"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/types"
	auditapi "k8s.io/apiserver/pkg/apis/audit"
	"k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/listproxy/listproxy/policy"
	"github.com/listproxy/listproxy/policy/media"
)

// AuditedAnswer has what an audit event says of the answer.
type AuditedAnswer struct {
	// ID is the value of the answer's Audit-Id header.
	ID             string
	Semantics      policy.Semantics
	Representation media.Representation
	// Revision is the revision of the list, or of the state with which a watch begins. Items is the number of objects
	// in that list or state.
	Revision uint64
	Items    int
	// Impersonated is the user whom the caller impersonates, or nil.
	Impersonated user.Info
}

// sendAuditEvent sends sink the event of an answer to r that is about to be written, and reports whether sink accepted
// the event. The parameters are those of [AuditLog.Write].
//
// kube-apiserver's own functions make the event, so it is like an event of kube-apiserver except for two things. The
// client's address is the peer of the connection, since listproxy does not believe X-Forwarded-For and X-Real-Ip. And an
// event never says that impersonation was constrained: only the API server that answered the review knows that.
func sendAuditEvent(
	sink audit.Sink, r *http.Request, asked *policy.Request, caller user.Info, received time.Time, answer AuditedAnswer,
) bool {
	ctx := audit.WithAuditContext(context.Background()) // the event is written even if the client leaves
	event := audit.AuditContextFrom(ctx)
	_ = event.Init(audit.RequestAuditConfig{Level: auditapi.LevelMetadata}, sink) // fails only if it is called twice
	audit.WithAuditID(ctx, types.UID(answer.ID))
	withoutClaims := &http.Request{ // of an address
		URL: r.URL, RemoteAddr: r.RemoteAddr, Header: http.Header{"User-Agent": r.Header["User-Agent"]},
	}
	audit.LogRequestMetadata(ctx, withoutClaims, received, authorizer.AttributesRecord{
		User: caller, Verb: asked.Verb(), ResourceRequest: true, APIGroup: asked.Group, APIVersion: asked.Version,
		Resource: asked.Resource, Namespace: asked.Namespace, Name: asked.Name,
	})
	if answer.Impersonated != nil {
		audit.LogImpersonatedUser(ctx, answer.Impersonated, "") // "" is ordinary impersonation
	}
	event.SetEventResponseStatusCode(http.StatusOK)
	audit.AddAuditAnnotations(ctx,
		"authorization.k8s.io/decision", "allow", // as kube-apiserver writes it (endpoints/filters, WithAuthorization)
		"listproxy.io/answered-from", "memory",
		"listproxy.io/semantics", string(answer.Semantics),
		"listproxy.io/revision", strconv.FormatUint(answer.Revision, 10),
		"listproxy.io/items", strconv.Itoa(answer.Items),
		"listproxy.io/representation", string(answer.Representation))
	return event.ProcessEventStage(ctx, auditapi.StageResponseStarted)
}
