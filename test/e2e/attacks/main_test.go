package attacks

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/listproxy/listproxy/test/controlplane"
	"github.com/listproxy/listproxy/test/harness"
	"github.com/listproxy/listproxy/test/harness/secrets"
)

const (
	// patience ends a wait for something that must come; no test passes because of it.
	patience = 30 * time.Second
	// parallelAttacks is the number of attacks at a time. It is larger than the number of CPUs, since attacks wait: net/http
	// keeps a connection open for half a second after it has refused a request.
	parallelAttacks = 24
)

// What all tests share.
var (
	cp    *controlplane.ControlPlane
	audit *auditLog
	// marker is in objects that only the admin may list.
	marker = "marker-" + rand.Text()
	// logins are the credentials of users, by name.
	logins = map[string]login{}
	// direct leads to kube-apiserver, and proxied to listproxy.
	direct, proxied endpoint
)

func TestMain(m *testing.M) {
	harness.Main(m, harness.Options{Parallel: parallelAttacks, SetUp: setUp})
}

func setUp(s *harness.Suite) error {
	dir, err := s.Dir()
	if err != nil {
		return err
	}
	if audit, err = newAuditLog(dir); err != nil {
		return err
	}
	// With a CA of front proxies kube-apiserver reads X-Remote-*, and refuses a certificate without a common name.
	front, err := controlplane.NewAuthority("front proxies")
	if err != nil {
		return err
	}
	frontCA := filepath.Join(dir, "front-ca.crt")
	if err := os.WriteFile(frontCA, front.PEM(), 0o600); err != nil {
		return err
	}
	cp, err = s.ControlPlane(controlplane.Options{
		APIServerArgs: append(audit.flags(),
			// With this feature kube-apiserver ends a connection after a request without credentials, at a random moment.
			"--feature-gates=UnauthenticatedHTTP2DOSMitigation=false",
			"--strict-transport-security-directives=max-age=3600",
			"--requestheader-client-ca-file="+frontCA, "--requestheader-username-headers=X-Remote-User",
			"--requestheader-group-headers=X-Remote-Group", "--requestheader-extra-headers-prefix=X-Remote-Extra-",
		),
	})
	if err != nil {
		return err
	}
	if err := errors.Join(createUsersAndObjects(s.Context()), createCertificateUsers(s.Context())); err != nil {
		return err
	}
	running, err := s.Proxy(harness.ProxyOptions{
		Upstream: cp.RESTConfig(controlplane.Feed),
		Args:     []string{"--watches", "--eager", "pods,configmaps", "--client-ca-file", cp.CAPath()},
	})
	if err != nil {
		return err
	}
	direct, proxied = newEndpoint(cp.URL(), cp.CA()), newEndpoint(running.URL(), running.CA())
	return nil
}

// The users who attack. createUsersAndObjects grants the rights of those that package controlplane does not have.
const (
	admin     = controlplane.Admin
	reader    = controlplane.Alice // lists pods in team-a
	nobody    = controlplane.Nobody
	anonymous = controlplane.Anonymous
	stranger  = "stranger" // has a token that kube-apiserver does not know
	named     = "named"    // lists the ConfigMap open in team-a, by its name
	deputy    = "deputy"   // may impersonate the reader
	reviewer  = "reviewer" // may impersonate the reader in SelfSubjectAccessReviews only
)

// A login is the credentials of a user.
type login struct {
	token       string
	certificate *tls.Certificate
	mayListAll  bool // the user may list the objects of all namespaces
}

// createUsersAndObjects creates the users that package controlplane does not have, and the objects.
func createUsersAndObjects(ctx context.Context) error {
	for _, user := range []string{admin, reader, nobody, anonymous} {
		logins[user] = login{token: cp.Token(user), mayListAll: user == admin}
	}
	logins[stranger] = login{token: "of-a-stranger"}
	// listproxy must emit neither this token nor the marker.
	secrets.Suite.Add("the token of "+stranger, logins[stranger].token)
	secrets.Suite.Add("the content of an object", marker)
	for _, account := range []string{named, deputy, reviewer} {
		token, err := cp.CreateServiceAccountToken(ctx, controlplane.TeamA, account)
		if err != nil {
			return err
		}
		logins[account] = login{token: token}
	}
	return errors.Join(cp.Apply(ctx, strings.ReplaceAll(objects, "MARKER", marker)), cp.GrantAll(
		ctx,
		controlplane.Grant{
			To: []string{controlplane.TeamA + "/" + named}, Namespace: controlplane.TeamA,
			Rules: []rbacv1.PolicyRule{controlplane.Rule("get,list,watch", "", "configmaps", "open")},
		},
		controlplane.Grant{
			To:    []string{controlplane.TeamA + "/" + deputy},
			Rules: []rbacv1.PolicyRule{controlplane.Rule("impersonate", "", "users", reader)},
		},
		controlplane.Grant{To: []string{controlplane.TeamA + "/" + reviewer}, Rules: controlplane.ReviewsAs(reader)},
	))
}

// objects are the objects of the cluster. MARKER stands for the marker, which only the admin may see. There are also a custom
// resource, and an API group of an aggregated API server that does not run.
const objects = `
{apiVersion: v1, kind: ConfigMap, metadata: {namespace: team-a, name: open}, data: {content: anything}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {namespace: team-a, name: shut}, data: {content: MARKER}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {namespace: team-b, name: open}, data: {content: MARKER}}
---
{apiVersion: v1, kind: Secret, metadata: {namespace: team-a, name: open, annotations: {content: MARKER}}}
---
{apiVersion: v1, kind: Pod, metadata: {namespace: team-a, name: open-0, labels: {of: team-a}},
 spec: {containers: [{name: main, image: example.com/main}]}}
---
{apiVersion: v1, kind: Pod, metadata: {namespace: team-a, name: open-1, labels: {of: team-a}},
 spec: {containers: [{name: main, image: example.com/main}]}}
---
{apiVersion: v1, kind: Pod, metadata: {namespace: team-b, name: shut-0, labels: {of: team-b}, annotations: {content: MARKER}},
 spec: {containers: [{name: main, image: example.com/main}]}}
---
{apiVersion: v1, kind: Pod, metadata: {namespace: team-b, name: shut-1, labels: {of: team-b}, annotations: {content: MARKER}},
 spec: {containers: [{name: main, image: example.com/main}]}}
---
{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: gadgets.attacks.test},
 spec: {group: attacks.test, scope: Namespaced, names: {plural: gadgets, singular: gadget, kind: Gadget},
 versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}]}}
---
{apiVersion: apiregistration.k8s.io/v1, kind: APIService, metadata: {name: v1.elsewhere.example},
 spec: {group: elsewhere.example, version: v1, groupPriorityMinimum: 1000, versionPriority: 1, insecureSkipTLSVerify: true, service: {namespace: default, name: none}}}
`
