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

// AuditEvent has the facts for the audit event of a request that is answered from memory.
type AuditEvent struct {
	Request  *http.Request   // the request as the client sent it
	Asked    *policy.Request // what policy.Parse has read of Request
	Caller   user.Info       // the user who sent Request
	Received time.Time       // when Request came

	// ID is the value of the answer's Audit-Id header.
	ID             string
	Semantics      policy.Semantics
	Representation media.Representation
	// Revision and Items are the revision and the number of objects of the list, or of the state with which a watch begins.
	Revision uint64
	Items    int
	// Impersonated is the user whom the caller impersonates, or nil.
	Impersonated user.Info
}

// sendAuditEvent makes the audit event that e describes, and gives it to sink. It reports whether sink accepted the event.
//
// The event is made with kube-apiserver's own functions. It differs from one of kube-apiserver in these points:
//   - The stage is ResponseStarted, even for a list, since the event is written before the answer.
//   - There are annotations of listproxy.
//   - The client's address is the peer of the connection, since listproxy does not believe X-Forwarded-For and X-Real-Ip.
//   - A constraint of the impersonation is missing, since listproxy does not learn it from the API server.
func sendAuditEvent(sink audit.Sink, e AuditEvent) bool {
	// The context is not the request's, so that the event is written even if the client leaves.
	ctx := audit.WithAuditContext(context.Background())
	event := audit.AuditContextFrom(ctx)
	_ = event.Init(audit.RequestAuditConfig{Level: auditapi.LevelMetadata}, sink) // fails only if called twice
	audit.WithAuditID(ctx, types.UID(e.ID))
	// r is e.Request without X-Forwarded-For and X-Real-Ip, from which LogRequestMetadata would take the client's address.
	r := &http.Request{
		URL: e.Request.URL, RemoteAddr: e.Request.RemoteAddr,
		Header: http.Header{"User-Agent": e.Request.Header["User-Agent"]},
	}
	audit.LogRequestMetadata(ctx, r, e.Received, authorizer.AttributesRecord{
		User: e.Caller, Verb: e.Asked.Verb(), ResourceRequest: true, APIGroup: e.Asked.Group, APIVersion: e.Asked.Version,
		Resource: e.Asked.Resource, Namespace: e.Asked.Namespace, Name: e.Asked.Name,
	})
	if e.Impersonated != nil {
		audit.LogImpersonatedUser(ctx, e.Impersonated, "") // "" means without a constraint
	}
	event.SetEventResponseStatusCode(http.StatusOK)
	audit.AddAuditAnnotations(ctx,
		"authorization.k8s.io/decision", "allow", // as kube-apiserver writes it (endpoints/filters, WithAuthorization)
		"listproxy.io/answered-from", "memory",
		"listproxy.io/semantics", string(e.Semantics),
		"listproxy.io/revision", strconv.FormatUint(e.Revision, 10),
		"listproxy.io/items", strconv.Itoa(e.Items),
		"listproxy.io/representation", string(e.Representation))
	return event.ProcessEventStage(ctx, auditapi.StageResponseStarted)
}
