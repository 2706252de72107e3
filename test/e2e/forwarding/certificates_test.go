package forwarding

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/json"
	"encoding/pem"
	"math/big"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/listproxy/listproxy/test/controlplane"
	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/harness"
	"github.com/listproxy/listproxy/test/harness/poll"
	"github.com/listproxy/listproxy/test/harness/secrets"
)

// trial is the service account of docs/rbac.yaml; its namespace has the same name.
const trial = "listproxy-trial"

// impersonator is the configuration of an account with the rights in docs/rbac.yaml and
// docs/rbac-impersonation.yaml, as an operator would give them.
func impersonator(t *testing.T) *rest.Config {
	t.Helper()
	for _, manifest := range []string{"rbac.yaml", "rbac-impersonation.yaml"} {
		if err := cp.ApplyDocs(t.Context(), manifest); err != nil {
			t.Fatalf("%s: %v", manifest, err)
		}
	}
	token, err := cp.CreateServiceAccountToken(t.Context(), trial, trial)
	expect.NoError(t, err)
	config := cp.RESTConfig(controlplane.Anonymous)
	config.BearerToken = token
	// The manifest names nobody, and leaves uids out, which some certificates here have.
	grant(t, controlplane.Grant{To: []string{trial + "/" + trial}, Rules: append(controlplane.Impersonation(),
		controlplane.Rule("impersonate", authenticationv1.GroupName, "uids"),
	)})
	// The API server's authorizer hears of it by a watch.
	poll.Until(t, patience, "the account may impersonate", func() bool {
		return accountMay(t, "userextras", credentialID) && accountMay(t, "uids", "")
	})
	return config
}

// accountMay says whether listproxy's account may impersonate what is of a kind.
func accountMay(t *testing.T, resource, subresource string) bool {
	t.Helper()
	review, err := admin.AuthorizationV1().SubjectAccessReviews().Create(t.Context(), &authorizationv1.SubjectAccessReview{
		Spec: authorizationv1.SubjectAccessReviewSpec{
			User: "system:serviceaccount:" + trial + ":" + trial,
			ResourceAttributes: &authorizationv1.ResourceAttributes{
				Verb: "impersonate", Group: authenticationv1.GroupName, Version: "v1",
				Resource: resource, Subresource: subresource,
			},
		},
	}, metav1.CreateOptions{})
	return err == nil && review.Status.Allowed
}

// credentialID is the extra in which the API server notes which certificate it was.
const credentialID = "authentication.kubernetes.io/credential-id"

// login is a client certificate and its key, PEM.
type login struct{ cert, key []byte }

// newLogin issues a certificate that the API server knows a user by. listproxy must not log the
// name.
func newLogin(t *testing.T, user string, groups ...string) login {
	t.Helper()
	cert, key, err := cp.IssueCert(user, groups...)
	expect.NoError(t, err)
	secrets.Suite.AddIdentity("the name of "+user+", who logs in with a certificate,", user)
	return login{cert, key}
}

// with makes configurations log in with a certificate and nothing else.
func (l login) with(configs func(user string) *rest.Config) func(user string) *rest.Config {
	return func(string) *rest.Config {
		config := configs(controlplane.Anonymous)
		config.CertData, config.KeyData = l.cert, l.key
		return config
	}
}

// pair is for a TLS client.
func (l login) pair(t *testing.T) tls.Certificate {
	t.Helper()
	pair, err := tls.X509KeyPair(l.cert, l.key)
	expect.NoError(t, err)
	return pair
}

// certDoor is a door of the test's own whose clients show a certificate, kubectl too.
func certDoor(t *testing.T, name string, configs func(user string) *rest.Config, l login) *door {
	t.Helper()
	d := doorOf(t, l.with(configs))
	d.name = name
	pair := l.pair(t)
	for _, client := range d.clients {
		client.Transport.(*http.Transport).TLSClientConfig.Certificates = []tls.Certificate{pair}
	}
	return d
}

// ways are the two doors of a listproxy.
func ways(p *harness.Proxy) map[string]func(user string) *rest.Config {
	return map[string]func(user string) *rest.Config{"server": throughProxy(p), "proxy-url": throughTunnel(p)}
}

// mayEdit lets a group do everything in a namespace. (There is no controller that fills the roles
// admin and edit.)
func mayEdit(t *testing.T, namespace, group string) {
	t.Helper()
	grant(t, controlplane.Grant{To: []string{"group:" + group}, Namespace: namespace, Role: "cluster-admin"})
}

// TestKubectlByCertificate plays the same commands straight and through both doors, as somebody who
// has a client certificate and no token.
func TestKubectlByCertificate(t *testing.T) {
	harness.Long(t)
	p := startProcess(t, harness.ProxyOptions{
		Upstream: impersonator(t), Connect: true,
		Args: []string{"--client-ca-file", cp.CAPath(), "--eager", "configmaps"},
	})
	jane := newLogin(t, "jane-of-the-certificate", "certificate-team", "certificate-others")
	straight := certDoor(t, "direct", cp.RESTConfig, jane)
	for name, configs := range ways(p) {
		t.Run(name, func(t *testing.T) {
			via := certDoor(t, name, configs, jane)
			ns := newNamespace(t)
			newPod(t, ns, "web-0")
			mayEdit(t, ns, "certificate-team")
			list := "/api/v1/namespaces/" + ns + "/configmaps?resourceVersion=0"
			poll.Until(t, patience, "she may list there", func() bool {
				return straight.do(t, call{path: list, user: controlplane.Anonymous}).Status == http.StatusOK
			})
			const manifest = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: applied}\ndata: {key: value}\n"
			env := []string{"KUBE_EDITOR=sed -i s/value/edited/"}
			commands := []command{
				{line: "auth whoami -o json"},
				{line: "apply -f -", stdin: manifest},
				{line: "edit configmap applied"},
				{line: "get configmap applied -o jsonpath={.data}"},
				{line: "get configmaps -o yaml"},
				{line: "exec web-0 -- echo hello"},
				{line: "logs web-0"},
				{line: "auth can-i --list"},
				{line: "get secrets -A", code: 1},
				{line: "get --raw /api/v1/pods?resourceVersion=0", code: 1},
				{line: "delete configmap applied"},
			}
			play := func(d *door) (outputs []output) {
				for _, c := range commands {
					o := d.run(t, env, c.stdin, append([]string{"-n", ns}, strings.Fields(c.line)...)...)
					if o.Code != c.code {
						t.Errorf("kubectl %s, %s: code %d, want %d: %s", c.line, d.name, o.Code, c.code, o.Err)
					}
					outputs = append(outputs, o.lasting())
				}
				return outputs
			}
			want, got := play(straight), play(via)
			for i, c := range commands {
				if diff := cmp.Diff(want[i], got[i]); diff != "" {
					t.Errorf("kubectl %s (-direct +via):\n%s", c.line, diff)
				}
			}

			newConfigMap(t, ns, "kept", nil)
			poll.Until(t, patience, "kubectl gets a list from memory", func() bool {
				o := via.run(t, nil, "", "get", "--raw", list, "-v=8")
				return o.Code == 0 && strings.Contains(o.Err, "Cache-Status: listproxy; hit; detail=any") && strings.Contains(o.Out, `"kept"`)
			})

			// A kubectl that knows the API server's resources, and one that has to ask.
			for _, d := range []*door{via, certDoor(t, name, configs, jane)} {
				o := d.run(t, nil, "", "get", "pods", "-n", ns, "--as="+controlplane.Alice)
				last := o.Err[strings.LastIndexByte(strings.TrimSpace(o.Err), '\n')+1:]
				if o.Code != 1 || !strings.Contains(last, "cannot impersonate others through listproxy") || !strings.Contains(last, "Use a token with listproxy") {
					t.Errorf("kubectl --as: code %d: %s", o.Code, o.Err)
				}
			}
		})
	}
}

// TestWhoamiByCertificate: the API server sees the same user, with all that belongs to one.
func TestWhoamiByCertificate(t *testing.T) {
	harness.Long(t)
	p := startProcess(t, harness.ProxyOptions{
		Upstream: impersonator(t), Connect: true, Args: []string{"--client-ca-file", cp.CAPath()},
	})
	for _, l := range []login{
		newLogin(t, "without-a-group"),
		newLogin(t, "of-some-groups", "one", "Two Three", "ünï"),
		newLogin(t, "Name: with, all % sörts/of=things", "a/b%2Fc"),
		newLogin(t, "already-authenticated", "system:authenticated"),
		newLogin(t, "master-of-all", "system:masters"),
		newLogin(t, "system:serviceaccount:team-a:by-certificate"), // without its groups: a token would have them
		newLogin(t, "system:serviceaccount:team-b:by-certificate", "system:serviceaccounts", "system:serviceaccounts:team-b"),
	} {
		want := whoami(t, certDoor(t, "direct", cp.RESTConfig, l), nil)
		if len(want.Status.UserInfo.Extra) == 0 {
			t.Errorf("%s has no extra", want.Status.UserInfo.Username)
		}
		for name, configs := range ways(p) {
			if diff := cmp.Diff(want.Status, whoami(t, certDoor(t, name, configs, l), nil).Status); diff != "" {
				t.Errorf("%s, %s (-direct +via):\n%s", want.Status.UserInfo.Username, name, diff)
			}
		}
	}
}

// whoami asks the API server who the caller is. The caller must be let through.
func whoami(t *testing.T, d *door, header http.Header) authenticationv1.SelfSubjectReview {
	t.Helper()
	r := d.do(t, whoamiCall(header))
	var review authenticationv1.SelfSubjectReview
	if err := json.Unmarshal([]byte(r.Body), &review); err != nil || r.Status != http.StatusCreated {
		t.Fatalf("whoami, %s: %d, %v: %s", d.name, r.Status, err, r.Body)
	}
	return review
}

// whoamiCall is without a token.
func whoamiCall(header http.Header) call {
	if header == nil {
		header = http.Header{}
	}
	header.Set("Content-Type", "application/json")
	return call{
		method: http.MethodPost, path: "/apis/authentication.k8s.io/v1/selfsubjectreviews", user: controlplane.Anonymous, header: header,
		body: `{"apiVersion":"authentication.k8s.io/v1","kind":"SelfSubjectReview"}`,
	}
}

// TestMayNotImpersonate: a listproxy whose account may not impersonate cannot be somebody else's
// way in. The caller gets the API server's own words.
func TestMayNotImpersonate(t *testing.T) {
	harness.Long(t)
	p := startProcess(t, harness.ProxyOptions{
		Upstream: cp.RESTConfig(controlplane.Feed), Connect: true, Args: []string{"--client-ca-file", cp.CAPath(), "--eager", "pods"},
	})
	l := newLogin(t, "master-in-vain", "system:masters")
	for name, configs := range ways(p) {
		d := certDoor(t, name, configs, l)
		for path, reason := range map[string]string{
			"/api/v1/pods?resourceVersion=0": "not-allowed", "/api/v1/pods": "most-recent", "/version": "not-list",
		} {
			r := d.do(t, call{path: path, user: controlplane.Anonymous})
			wantRefused(t, r, http.StatusForbidden, reason)
			// (In the words of constrained impersonation, if it is on.)
			if !strings.Contains(r.Body, `User \"listproxy\" cannot impersonate`) {
				t.Errorf("%s, %s: %s", name, path, r.Body)
			}
		}
	}
}

// TestCertificateAndToken: a certificate that is verified counts before a token, as at the API
// server; one that is not leaves the token to count.
func TestCertificateAndToken(t *testing.T) {
	harness.Long(t)
	p := startProcess(t, harness.ProxyOptions{
		Upstream: impersonator(t), Connect: true, Args: []string{"--client-ca-file", cp.CAPath()},
	})
	strange := newClientCA(t).issue(t, "stranger-by-certificate", "")
	for _, l := range []login{newLogin(t, "with-a-token-too"), strange} {
		for user := range map[string]bool{controlplane.Admin: true, controlplane.Carol: true, stranger: true, controlplane.Anonymous: true} {
			c := whoamiCall(nil)
			c.user = user
			want := certDoor(t, "direct", cp.RESTConfig, l).do(t, c)
			for name, configs := range ways(p) {
				got := certDoor(t, name, configs, l).do(t, c)
				if got.Status != want.Status {
					t.Errorf("%s with the token of %s: status %d, straight %d: %s", name, user, got.Status, want.Status, got.Body)
				}
				var a, b authenticationv1.SelfSubjectReview
				if json.Unmarshal([]byte(want.Body), &a) == nil && json.Unmarshal([]byte(got.Body), &b) == nil {
					if diff := cmp.Diff(a.Status, b.Status); diff != "" {
						t.Errorf("%s with the token of %s (-direct +via):\n%s", name, user, diff)
					}
				}
			}
		}
	}
}

// clientCA signs client certificates that the API server does not know.
type clientCA struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newClientCA(t *testing.T) *clientCA {
	t.Helper()
	ca := &clientCA{}
	template := newTemplate(t, "a CA of clients")
	template.IsCA, template.BasicConstraintsValid, template.KeyUsage = true, true, x509.KeyUsageCertSign
	ca.cert, ca.key = sign(t, template, nil)
	return ca
}

func (ca *clientCA) pem() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: ca.cert.Raw})
}

// uidOID is where kube-apiserver looks for a user's uid (k8s.io/apimachinery's asn1 package).
var uidOID = asn1.ObjectIdentifier{1, 3, 6, 1, 4, 1, 57683, 2}

// issue makes a certificate of a user, with a uid if it is not "".
func (ca *clientCA) issue(t *testing.T, user, uid string) login {
	t.Helper()
	secrets.Suite.AddIdentity("the name of "+user+", who logs in with a certificate,", user)
	return ca.issueTo(t, user, uid)
}

// issueTo makes a certificate for what is no caller, and has a name that may be seen.
func (ca *clientCA) issueTo(t *testing.T, user, uid string) login {
	t.Helper()
	template := newTemplate(t, user)
	template.KeyUsage, template.ExtKeyUsage = x509.KeyUsageDigitalSignature, []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	if uid != "" {
		template.Subject.ExtraNames = []pkix.AttributeTypeAndValue{{Type: uidOID, Value: uid}}
	}
	cert, key := sign(t, template, ca)
	der, err := x509.MarshalPKCS8PrivateKey(key)
	expect.NoError(t, err)
	l := login{
		cert: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert.Raw}),
		key:  pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}),
	}
	secrets.Suite.AddKey("the key of "+user, l.key)
	return l
}

func newTemplate(t *testing.T, name string) *x509.Certificate {
	t.Helper()
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	expect.NoError(t, err)
	return &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
	}
}

// sign signs a certificate with a new key; nil signs itself.
func sign(t *testing.T, template *x509.Certificate, by *clientCA) (*x509.Certificate, *ecdsa.PrivateKey) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	expect.NoError(t, err)
	if by == nil {
		by = &clientCA{cert: template, key: key}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, by.cert, key.Public(), by.key)
	expect.NoError(t, err)
	cert, err := x509.ParseCertificate(der)
	expect.NoError(t, err)
	return cert, key
}

// TestClientCAReplaced replaces the file with the CAs while listproxy runs. What an old certificate
// could do ends on connections that are open, too.
func TestClientCAReplaced(t *testing.T) {
	harness.Long(t)
	first, second := newClientCA(t), newClientCA(t)
	file := filepath.Join(t.TempDir(), "clients.crt")
	expect.NoError(t, os.WriteFile(file, first.pem(), 0o600))
	p := startProcess(t, harness.ProxyOptions{
		Upstream: impersonator(t), Connect: true, Args: []string{"--client-ca-file", file},
	})
	type client struct {
		name string
		*door
	}
	var olds, news []client
	for name, configs := range ways(p) {
		olds = append(olds, client{"old-user", certDoor(t, name, configs, first.issue(t, "old-user", "old-uid"))})
		news = append(news, client{"new-user", certDoor(t, name, configs, second.issue(t, "new-user", "new-uid"))})
	}
	in := func(clients []client) bool {
		for _, c := range clients {
			r := c.do(t, whoamiCall(nil))
			if r.Status == http.StatusCreated && strings.Contains(r.Body, `"username":"`+c.name+`","uid":"`) {
				continue
			}
			if r.Status != http.StatusUnauthorized || !strings.Contains(r.Body, "--client-ca-file") {
				t.Errorf("%s, %s: status %d: %s", c.name, c.door.name, r.Status, r.Body)
			}
			return false
		}
		return true
	}
	if !in(olds) || in(news) {
		t.Fatal("the certificates at first")
	}
	replace := func(content []byte) {
		t.Helper()
		expect.NoError(t, os.WriteFile(file+".next", content, 0o600))
		expect.NoError(t, os.Rename(file+".next", file))
	}
	replace(bytes.Join([][]byte{first.pem(), second.pem()}, nil))
	poll.Until(t, patience, "both count", func() bool { return in(news) && in(olds) })
	replace(second.pem())
	poll.Until(t, patience, "the new one alone counts", func() bool { return in(news) && !in(olds) })
	replace([]byte("nothing to read"))
	poll.Until(t, patience, "listproxy says what it cannot use", func() bool { return strings.Contains(p.Log(), file) })
	if !in(news) {
		t.Error("a file that cannot be read ended what was in force")
	}
}
