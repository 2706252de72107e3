package observe

import (
	"net/http"
	"strconv"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apiserver/pkg/apis/audit"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/listproxy/listproxy/policy"
	"github.com/listproxy/listproxy/policy/media"
)

// Annotations of an audit event.
const (
	// auditDecision is kube-apiserver's (k8s.io/apiserver/pkg/endpoints/filters,
	// WithAuthorization).
	auditDecision = "authorization.k8s.io/decision"

	// auditAnsweredFrom distinguishes listproxy's events from kube-apiserver's.
	auditAnsweredFrom   = "listproxy.io/answered-from"
	auditSemantics      = "listproxy.io/semantics"
	auditRevision       = "listproxy.io/revision"
	auditItems          = "listproxy.io/items"
	auditRepresentation = "listproxy.io/representation"
)

const (
	// maxUserAgent and userAgentEnd are how kube-apiserver shortens a User-Agent
	// (k8s.io/apiserver/pkg/audit, maybeTruncateUserAgent).
	maxUserAgent = 1024
	userAgentEnd = "...TRUNCATED"
)

// AuditedAnswer is what an audit event says of the answer.
type AuditedAnswer struct {
	// ID is the value of the answer's Audit-Id header.
	ID             string
	Semantics      policy.Semantics
	Representation media.Representation
	// Revision is that of the list, or of the first state of a watch; Items is how many objects are
	// in it.
	Revision uint64
	Items    int
	// Impersonated is the user whom the caller impersonates, or nil.
	Impersonated user.Info
}

// newEvent describes an answer that is about to be given.
//
// It has the same content as kube-apiserver's (k8s.io/apiserver/pkg/audit, LogRequestMetadata),
// without the mode of constrained impersonation, which is with the review, and
// except for the addresses: kube-apiserver takes the client's claims in X-Forwarded-For and
// X-Real-Ip, and the connection's peer. Here it is the peer alone, as in requests that listproxy
// forwards.
func newEvent(r *http.Request, list *policy.Request, who user.Info, received, now time.Time, a AuditedAnswer) *audit.Event {
	event := &audit.Event{
		Level:      audit.LevelMetadata,
		AuditID:    types.UID(a.ID),
		Stage:      audit.StageResponseStarted,
		RequestURI: r.URL.RequestURI(),
		Verb:       list.Verb(),
		User:       userOf(who),
		SourceIPs:  peerAddress(r),
		UserAgent:  shortenUserAgent(r.UserAgent()),
		ObjectRef: &audit.ObjectReference{
			Resource:   list.Resource,
			Namespace:  list.Namespace,
			Name:       list.Name,
			APIGroup:   list.Group,
			APIVersion: list.Version,
		},
		ResponseStatus:           &metav1.Status{Code: http.StatusOK},
		RequestReceivedTimestamp: metav1.NewMicroTime(received),
		StageTimestamp:           metav1.NewMicroTime(now),
		Annotations: map[string]string{
			auditDecision:       "allow",
			auditAnsweredFrom:   "memory",
			auditSemantics:      string(a.Semantics),
			auditRevision:       strconv.FormatUint(a.Revision, 10),
			auditItems:          strconv.Itoa(a.Items),
			auditRepresentation: string(a.Representation),
		},
	}
	if a.Impersonated != nil {
		event.ImpersonatedUser = new(userOf(a.Impersonated))
	}
	return event
}

// userOf is a user as an event has it.
func userOf(who user.Info) authenticationv1.UserInfo {
	info := authenticationv1.UserInfo{
		Username: who.GetName(),
		UID:      who.GetUID(),
		Groups:   who.GetGroups(),
	}
	if extra := who.GetExtra(); len(extra) > 0 {
		info.Extra = make(map[string]authenticationv1.ExtraValue, len(extra))
		for key, values := range extra {
			info.Extra[key] = values
		}
	}
	return info
}

// peerAddress returns where the connection came from, as kube-apiserver writes addresses.
func peerAddress(r *http.Request) []string {
	var addresses []string
	for _, ip := range utilnet.SourceIPs(&http.Request{RemoteAddr: r.RemoteAddr}) {
		addresses = append(addresses, ip.String())
	}
	return addresses
}

func shortenUserAgent(agent string) string {
	if len(agent) > maxUserAgent {
		return agent[:maxUserAgent] + userAgentEnd
	}
	return agent
}
