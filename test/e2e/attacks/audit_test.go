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

// auditPolicy has the API server note who asked what, of every request.
const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived, ResponseStarted]
rules: [{level: Metadata}]
`

// auditLog is the API server's own account of what it was asked.
type auditLog struct{ policy, path string }

func newAuditLog(dir string) (*auditLog, error) {
	a := &auditLog{policy: filepath.Join(dir, "audit-policy.yaml"), path: filepath.Join(dir, "audit.log")}
	return a, os.WriteFile(a.policy, []byte(auditPolicy), 0o600)
}

// flags are the API server's.
func (a *auditLog) flags() []string {
	return []string{"--audit-policy-file=" + a.policy, "--audit-log-path=" + a.path, "--audit-log-mode=blocking-strict"}
}

// account is what is compared of an audit event.
type account struct {
	ID        string // what follows the attack's own identifier
	URI, Verb string
	Code      int32
	// User is who asked, and As in whose name. Whom listproxy states is the former.
	User, As authenticationv1.UserInfo
	Object   auditv1.ObjectReference
}

// accounts is all that was said of a request, or of what was smuggled in with it.
type accounts struct {
	completed []account
	addresses []string // from where, by the API server's belief
}

// read returns all accounts, by what the identifiers begin with, up to the first full stop.
func (a *auditLog) read() (map[string]accounts, error) {
	content, err := os.ReadFile(a.path)
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
		attack, rest, ours := strings.Cut(string(event.AuditID), ".")
		if !ours {
			continue
		}
		it := all[attack]
		if event.Stage == auditv1.StageResponseComplete || event.Stage == auditv1.StagePanic {
			it.completed = append(it.completed, accountOf(event, rest))
			it.addresses = append(it.addresses, event.SourceIPs...)
		}
		all[attack] = it
	}
	for _, it := range all {
		slices.SortFunc(it.completed, func(a, b account) int {
			return strings.Compare(a.ID+" "+a.URI, b.ID+" "+b.URI)
		})
	}
	return all, lines.Err()
}

func accountOf(event auditv1.Event, id string) account {
	// A space that HTTP/2 had in a target listproxy escapes; it means the same.
	uri := strings.ReplaceAll(event.RequestURI, " ", "%20")
	out := account{ID: id, URI: uri, Verb: event.Verb, User: event.User}
	if event.ResponseStatus != nil {
		out.Code = event.ResponseStatus.Code
	}
	switch {
	case event.ImpersonatedUser != nil && event.User.Username == controlplane.FeedUserName:
		out.User = *event.ImpersonatedUser
	case event.ImpersonatedUser != nil:
		out.As = *event.ImpersonatedUser
	}
	if event.ObjectRef != nil {
		out.Object = *event.ObjectRef
	}
	return out
}
