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

// AuditedAnswer is what an audit event says of the answer.
type AuditedAnswer struct {
	// ID is the value of the answer's Audit-Id header.
	ID             string
	Semantics      policy.Semantics
	Representation media.Representation
	// Revision is that of the list, or of the state with which a watch begins. Items is the number of objects in it.
	Revision uint64
	Items    int
	// Impersonated is the user whom the caller impersonates, or nil.
	Impersonated user.Info
}

// sendAuditEvent gives sink the event of an answer that is about to be given, and reports whether sink took it.
//
// kube-apiserver's own functions make the event. It has no mode of constrained impersonation, which is with the
// review. Its address is the connection's peer, as in requests that listproxy forwards, while kube-apiserver also takes
// the client's claims in X-Forwarded-For and X-Real-Ip.
func sendAuditEvent(
	sink audit.Sink, r *http.Request, list *policy.Request, who user.Info, received time.Time, answer AuditedAnswer,
) bool {
	ctx := audit.WithAuditContext(context.Background())
	event := audit.AuditContextFrom(ctx)
	_ = event.Init(audit.RequestAuditConfig{Level: auditapi.LevelMetadata}, sink) // fails only if it is called twice
	audit.WithAuditID(ctx, types.UID(answer.ID))
	header := http.Header{"User-Agent": r.Header["User-Agent"]} // without claims of an address
	audit.LogRequestMetadata(ctx, &http.Request{URL: r.URL, RemoteAddr: r.RemoteAddr, Header: header}, received, authorizer.AttributesRecord{
		User: who, Verb: list.Verb(), ResourceRequest: true,
		APIGroup: list.Group, APIVersion: list.Version, Resource: list.Resource, Namespace: list.Namespace, Name: list.Name,
	})
	if answer.Impersonated != nil {
		audit.LogImpersonatedUser(ctx, answer.Impersonated, "")
	}
	event.SetEventResponseStatusCode(http.StatusOK)
	audit.AddAuditAnnotations(ctx,
		"authorization.k8s.io/decision", "allow", // kube-apiserver's own (endpoints/filters, WithAuthorization)
		"listproxy.io/answered-from", "memory",
		"listproxy.io/semantics", string(answer.Semantics),
		"listproxy.io/revision", strconv.FormatUint(answer.Revision, 10),
		"listproxy.io/items", strconv.Itoa(answer.Items),
		"listproxy.io/representation", string(answer.Representation))
	return event.ProcessEventStage(ctx, auditapi.StageResponseStarted)
}
