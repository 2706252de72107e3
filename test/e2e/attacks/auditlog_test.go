package attacks

import (
	"bufio"
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"github.com/listproxy/listproxy/test/controlplane"
)

// auditPolicy has kube-apiserver log the metadata of every request.
const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived, ResponseStarted]
rules: [{level: Metadata}]
`

// auditLog is the audit log of kube-apiserver, and the file of its policy.
type auditLog struct{ policyPath, logPath string }

func newAuditLog(dir string) (*auditLog, error) {
	a := &auditLog{policyPath: filepath.Join(dir, "audit-policy.yaml"), logPath: filepath.Join(dir, "audit.log")}
	return a, os.WriteFile(a.policyPath, []byte(auditPolicy), 0o600)
}

// flags returns the flags of kube-apiserver that write the log.
func (a *auditLog) flags() []string {
	return []string{"--audit-policy-file=" + a.policyPath, "--audit-log-path=" + a.logPath, "--audit-log-mode=blocking-strict"}
}

// account is what kube-apiserver's audit log says of one request: the parts that are compared.
type account struct {
	ID        string // the part of the Audit-Id after the attack's number: "1" for the attack, "follower", or "smuggled"
	URI, Verb string
	Code      int32
	// User is who sent the request. For the user of a certificate, listproxy sends it and impersonates that user. User is then
	// the user of the certificate, as if the request had come directly.
	User authenticationv1.UserInfo
	// Impersonated is the user whom User impersonates, or empty.
	Impersonated authenticationv1.UserInfo
	Object       auditv1.ObjectReference
}

// accounts is what the audit log says of one attack: of its own request, of the follower, and of whatever was smuggled in.
type accounts struct {
	completed []account
	addresses []string // from where kube-apiserver believes that the requests came
}

// read returns the accounts of all attacks, by the attack's number: the part of the Audit-Id before the first full stop.
func (a *auditLog) read() (map[string]accounts, error) {
	content, err := os.ReadFile(a.logPath)
	if err != nil {
		return nil, err
	}
	all := map[string]accounts{}
	lines := bufio.NewScanner(bytes.NewReader(content))
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		var event auditv1.Event
		if err := json.Unmarshal(lines.Bytes(), &event); err != nil {
			continue // the last line may be half written
		}
		attack, rest, isOurs := strings.Cut(string(event.AuditID), ".")
		if !isOurs {
			continue
		}
		seen := all[attack]
		if event.Stage == auditv1.StageResponseComplete || event.Stage == auditv1.StagePanic {
			seen.completed = append(seen.completed, accountOf(event, rest))
			seen.addresses = append(seen.addresses, event.SourceIPs...)
		}
		all[attack] = seen
	}
	for _, seen := range all {
		slices.SortFunc(seen.completed, func(a, b account) int {
			return strings.Compare(a.ID+" "+a.URI, b.ID+" "+b.URI)
		})
	}
	return all, lines.Err()
}

// accountOf returns the account of an event.
func accountOf(event auditv1.Event, id string) account {
	// listproxy escapes a space in the target of an HTTP/2 request, which means the same.
	uri := strings.ReplaceAll(event.RequestURI, " ", "%20")
	out := account{ID: id, URI: uri, Verb: event.Verb, User: event.User}
	if event.ResponseStatus != nil {
		out.Code = event.ResponseStatus.Code
	}
	switch {
	case event.ImpersonatedUser != nil && event.User.Username == controlplane.FeedUserName:
		out.User = *event.ImpersonatedUser
	case event.ImpersonatedUser != nil:
		out.Impersonated = *event.ImpersonatedUser
	}
	if event.ObjectRef != nil {
		out.Object = *event.ObjectRef
	}
	return out
}
