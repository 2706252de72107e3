package audit

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/listproxy/listproxy/policy"
	"github.com/listproxy/listproxy/policy/media"
	"github.com/listproxy/listproxy/proxy/kubehttp"
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
	auditBytes          = "listproxy.io/bytes"
	auditRepresentation = "listproxy.io/representation"
	// auditBroken is "true" if the client cannot have got the whole answer; else it is absent.
	auditBroken = "listproxy.io/broken-off"
)

const (
	// maxUserAgent and userAgentEnd are how kube-apiserver shortens a User-Agent
	// (k8s.io/apiserver/pkg/audit, maybeTruncateUserAgent).
	maxUserAgent = 1024
	userAgentEnd = "...TRUNCATED"
)

// Answer is what an audit event says of the answer.
type Answer struct {
	// ID is the value of the answer's Audit-Id header.
	ID             string
	Semantics      policy.Semantics
	Representation media.Representation
	// Revision is that of the list, Items is the number of objects in it.
	Revision uint64
	Items    int
	// Bytes of the body, in its content encoding, that were given to the connection.
	Bytes int64
	// Started says that the answer is a watch which has only begun: another event follows at its
	// end.
	Started bool
	// Broken says that writing ended early, since the client had gone.
	Broken bool
}

// newEvent returns what is known about a list before it is answered.
//
// It has the same content as kube-apiserver's (k8s.io/apiserver/pkg/audit, LogRequestMetadata),
// except for the addresses: kube-apiserver takes the client's claims in X-Forwarded-For and
// X-Real-Ip, and the connection's peer. Here it is the peer alone, as in requests that listproxy
// forwards.
func newEvent(r *http.Request, list policy.Request, who user.Info, received time.Time) *auditv1.Event {
	return &auditv1.Event{
		TypeMeta:   metav1.TypeMeta{Kind: "Event", APIVersion: auditv1.SchemeGroupVersion.String()},
		Level:      auditv1.LevelMetadata,
		Stage:      auditv1.StageResponseComplete,
		RequestURI: r.URL.RequestURI(),
		Verb:       list.Verb(),
		User:       userOf(who),
		SourceIPs:  peerAddress(r),
		UserAgent:  shortenUserAgent(r.UserAgent()),
		ObjectRef: &auditv1.ObjectReference{
			Resource:   list.Resource,
			Namespace:  list.Namespace,
			Name:       list.Name,
			APIGroup:   list.Group,
			APIVersion: list.Version,
		},
		ResponseStatus:           &metav1.Status{Code: http.StatusOK},
		RequestReceivedTimestamp: metav1.NewMicroTime(received),
	}
}

// completeEvent adds what is known once the answer has been written.
func completeEvent(e *auditv1.Event, a Answer, now time.Time) {
	e.AuditID = types.UID(a.ID)
	e.StageTimestamp = metav1.NewMicroTime(now)
	e.Annotations = map[string]string{
		auditDecision:       "allow",
		auditAnsweredFrom:   "memory",
		auditSemantics:      string(a.Semantics),
		auditRevision:       strconv.FormatUint(a.Revision, 10),
		auditItems:          strconv.Itoa(a.Items),
		auditBytes:          strconv.FormatInt(a.Bytes, 10),
		auditRepresentation: string(a.Representation),
	}
	if a.Started {
		e.Stage = auditv1.StageResponseStarted
	}
	if a.Broken {
		e.Annotations[auditBroken] = "true"
	}
}

// encodeEvent returns the line that kube-apiserver's log backend writes for an event: its codec
// uses these types and this encoder in the end, and the tests compare both. Whatever bytes a client
// sent, the line is valid JSON: bytes that are not UTF-8 become U+FFFD.
func encodeEvent(e *auditv1.Event) ([]byte, error) {
	var line bytes.Buffer
	if err := json.NewEncoder(&line).Encode(e); err != nil {
		return nil, fmt.Errorf("encode an audit event: %w", err)
	}
	return line.Bytes(), nil
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

const (
	// maxJSONByte is how many bytes of JSON a byte of a string becomes at most: \u003c, \ufffd.
	maxJSONByte = 6
	// frameSize is more than an event needs in addition to the strings that sizeOf counts.
	frameSize = 2048
)

// sizeOf returns an upper bound, in bytes, of e's line once it has an ID of the given length.
func sizeOf(e *auditv1.Event, who user.Info, id int) int {
	strings := len(e.RequestURI) + len(e.UserAgent) + id +
		len(e.ObjectRef.Namespace) + len(e.ObjectRef.Name) + len(e.ObjectRef.Resource) +
		len(e.ObjectRef.APIGroup) + len(e.ObjectRef.APIVersion) +
		kubehttp.UserSize(who)
	for _, ip := range e.SourceIPs {
		strings += len(ip)
	}
	return frameSize + maxJSONByte*strings
}
