package attacks

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/listproxy/listproxy/test/controlplane"
	"github.com/listproxy/listproxy/test/harness"
)

const (
	// patience ends a wait for something that must come; no test passes because of it.
	patience = 30 * time.Second
	// silence is how long nobody says anything where nobody is to.
	silence = 5 * time.Second
	// atATime is how many attacks run at a time: most of them wait, some for half a second, which
	// is how long net/http keeps a connection after it has refused what came on it.
	atATime = 24
)

// What all tests share.
var (
	cp    *controlplane.ControlPlane
	audit *auditLog
	// marker is in objects that only the admin may list.
	marker = "marker-" + rand.Text()
	// logins are what users show, by their names.
	logins = map[string]login{}
	// tap is on listproxy's way to the API server.
	tap    *wiretap
	direct door
	// doors are the ways into listproxy.
	doors []door
)

func TestMain(m *testing.M) {
	harness.Main(m, harness.Options{Parallel: atATime, SetUp: setUp})
}

func setUp(s *harness.Suite) error {
	dir, err := s.Dir()
	if err != nil {
		return err
	}
	if audit, err = newAuditLog(dir); err != nil {
		return err
	}
	front, err := newFrontAuthority(dir)
	if err != nil {
		return err
	}
	cp, err = s.ControlPlane(controlplane.Options{
		Dir: filepath.Join(dir, "controlplane"),
		APIServerArgs: append(append(audit.flags(), front.flags()...),
			// It would end a connection over which somebody without credentials asked something, at
			// a moment that is not the same twice.
			"--feature-gates=UnauthenticatedHTTP2DOSMitigation=false",
		),
	})
	if err != nil {
		return err
	}
	if err := furnish(s.Context()); err != nil {
		return err
	}
	if err := furnishCertificates(s.Context(), front.authority); err != nil {
		return err
	}
	upstream := cp.RESTConfig(controlplane.Feed)
	if tap, err = newWiretap(dir, cp.URL(), cp.CA(), upstream.BearerToken); err != nil {
		return err
	}
	host := strings.TrimPrefix(cp.URL(), "https://")
	upstream.Host, upstream.CAData = tap.URL(), tap.ca
	var running *harness.Proxy
	// Before it is started, so that this comes after its end: what it says at its end counts, too.
	s.Cleanup(func() error {
		if running == nil {
			return nil
		}
		return keptSecrets(running.Log())
	})
	running, err = s.Proxy(harness.ProxyOptions{
		Upstream: upstream,
		Args:     []string{"--watches", "--eager", "pods,configmaps", "--client-ca-file", cp.CAPath(), "--connect-hosts", host},
		Connect:  true,
	})
	if err != nil {
		return err
	}
	direct = newDoor("direct", cp.URL(), cp.CA())
	doors = []door{
		newDoor("server", running.URL(), running.CA()),
		newTunnel("tunnel", running.ConnectURL(), host, running.CA()),
	}
	return nil
}

// keptSecrets returns an error if a token, or the marker, is in a log.
func keptSecrets(log string) error {
	for line := range strings.Lines(log) {
		for user, l := range logins {
			if l.token != "" && strings.Contains(line, l.token) {
				return fmt.Errorf("the token of %s is in listproxy's log: %s", user, strings.ReplaceAll(line, l.token, "(token)"))
			}
		}
	}
	if strings.Contains(log, marker) {
		return errors.New("the content of an object is in listproxy's log")
	}
	return nil
}

// Who attacks. What each may do beside the users of package controlplane is in furnish.
const (
	admin     = controlplane.Admin
	reader    = controlplane.Alice // lists pods in team-a
	carol     = controlplane.Carol // authenticated, no more
	nobody    = controlplane.Nobody
	anonymous = controlplane.Anonymous
	stranger  = "stranger" // has a token that the API server does not know
	named     = "named"    // lists config maps in team-a that are called open
	deputy    = "deputy"   // impersonates the reader
	reviewer  = "reviewer" // creates SelfSubjectAccessReviews as the reader, and does nothing else so
)

// A login is what a user shows.
type login struct {
	token       string
	certificate *tls.Certificate
	all         bool // may list everything
}

// furnish makes the users that package controlplane has not, and the objects to steal.
func furnish(ctx context.Context) error {
	client, err := kubernetes.NewForConfig(cp.RESTConfig(admin))
	if err != nil {
		return err
	}
	for _, user := range []string{admin, reader, carol, nobody, anonymous} {
		logins[user] = login{token: cp.Token(user), all: user == admin}
	}
	logins[stranger] = login{token: "of-a-stranger"}
	for _, account := range []string{named, deputy, reviewer} {
		token, err := cp.CreateServiceAccountToken(ctx, controlplane.TeamA, account)
		if err != nil {
			return err
		}
		logins[account] = login{token: token}
	}
	var errs []error
	keep := func(_ any, err error) { errs = append(errs, err) }
	keep(nil, cp.GrantAll(
		ctx,
		controlplane.Grant{To: []string{controlplane.TeamA + "/" + named}, Namespace: controlplane.TeamA, Rules: []rbacv1.PolicyRule{
			controlplane.Rule("get,list,watch", "", "configmaps", "open"),
		}},
		controlplane.Grant{To: []string{controlplane.TeamA + "/" + deputy}, Rules: []rbacv1.PolicyRule{
			controlplane.Rule("impersonate", "", "users", reader),
		}},
	))
	configMap := func(namespace, name, content string) {
		keep(client.CoreV1().ConfigMaps(namespace).Create(ctx, &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string]string{"content": content},
		}, metav1.CreateOptions{}))
	}
	pod := func(namespace, name, content string) {
		keep(client.CoreV1().Pods(namespace).Create(ctx, &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{"content": content}, Labels: map[string]string{"of": namespace}},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "example.com/main"}}},
		}, metav1.CreateOptions{}))
	}
	configMap(controlplane.TeamA, "open", "anything")
	configMap(controlplane.TeamA, "shut", marker)
	configMap(controlplane.TeamB, "open", marker)
	for i := range 3 {
		pod(controlplane.TeamA, fmt.Sprintf("open-%d", i), "anything")
		pod(controlplane.TeamB, fmt.Sprintf("shut-%d", i), marker)
	}
	keep(client.CoreV1().Secrets(controlplane.TeamA).Create(ctx, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "open", Annotations: map[string]string{"content": marker}},
	}, metav1.CreateOptions{}))
	return errors.Join(errs...)
}
