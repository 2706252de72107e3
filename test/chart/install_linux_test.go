package chart

import (
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/listproxy/listproxy/policy"
	"github.com/listproxy/listproxy/test/controlplane"
	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/harness/logbuffer"
	"github.com/listproxy/listproxy/test/harness/poll"
)

// TestInstall: from nothing to a listproxy that answers, also to certificates and through tunnels, upgraded,
// and away again.
func TestInstall(t *testing.T) {
	c := newCluster(t)
	r := c.newRelease(t, "listproxy", "proxies")
	c.kubectl(t, "", "-n", r.namespace, "create", "configmap", "client-ca", "--from-literal=bundle="+string(c.cp.CA()))
	r.apply(t, `
clientCertificates: {enabled: true, caConfigMap: {name: client-ca, key: bundle}}
impersonation: {users: [`+controlplane.CertUser+`]}
connect: {enabled: true}
`)
	expect.NoError(t, verify(r.certificate(t), "listproxy", "listproxy.proxies.svc", "listproxy.proxies.svc.cluster.local", "kubernetes.default.svc", "localhost", "127.0.0.1"))
	pod := r.run(t)
	if !strings.Contains(pod.log.String(), `"version":"`+imageVersion+`"`) {
		t.Error("it does not say the version that it was built with")
	}
	t.Run("lists", func(t *testing.T) { checkLists(t, r) })
	t.Run("helm test", func(t *testing.T) { checkHelmTest(t, r) })
	t.Run("certificates", func(t *testing.T) { checkCertificates(t, r) })
	t.Run("tunnel", func(t *testing.T) { checkTunnel(t, r) })
	pod.stop(t)
	t.Run("restricted", func(t *testing.T) { checkRestricted(t, r) })
	t.Run("upgrade", func(t *testing.T) { checkUpgrade(t, r) })
	t.Run("autoscaling", func(t *testing.T) { checkAutoscaling(t, r) })
	if len(c.ofHelm(t)) == 0 {
		t.Error("this test does not see what Helm makes")
	}
	mustHelm(t, r.args("uninstall")...)
	if left := c.ofHelm(t); len(left) > 0 {
		t.Errorf("left behind: %q", left)
	}
}

// TestUpgradeFromReleases: the chart of each release, as testdata/releases keeps it, is upgraded to today's, and
// clients go on to trust the same CA; and its policy is still accepted. What is installed before the first release is
// today's chart, packaged as a release is.
func TestUpgradeFromReleases(t *testing.T) {
	c := newCluster(t)
	policies, err := filepath.Glob("testdata/releases/*.policy.yaml")
	expect.NoError(t, err)
	for _, path := range policies {
		text, err := os.ReadFile(path) // #nosec G304 -- of this repository
		expect.NoError(t, err)
		_, err = policy.ParseConfig(path, text)
		expect.NoError(t, err)
	}
	charts, err := filepath.Glob("testdata/releases/*.tgz")
	expect.NoError(t, err)
	packages := t.TempDir()
	mustHelm(t, "package", chart, "--destination", packages)
	today, err := filepath.Glob(packages + "/*.tgz")
	expect.NoError(t, err)
	for i, old := range append(charts, today...) {
		t.Run(filepath.Base(old), func(t *testing.T) {
			r := c.newRelease(t, "listproxy", fmt.Sprintf("from-%d", i))
			mustHelm(t, append(r.args("install", "-f", r.ports(t)), old)...)
			before := r.certificate(t)
			r.apply(t, "{}")
			if !cmp.Equal(before.Data, r.certificate(t).Data) { // with a key, which is not printed
				t.Error("the certificate is another one after the upgrade")
			}
			r.run(t).stop(t)
			mustHelm(t, r.args("uninstall")...)
		})
	}
}

// checkRestricted: a pod that is not restricted would not have been taken.
func checkRestricted(t *testing.T, r *release) {
	lax := r.deployment(t).Spec.Template.Spec
	lax.SecurityContext = nil
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "lax"}, Spec: lax}
	_, err := r.c.admin.CoreV1().Pods(r.namespace).Create(t.Context(), pod, metav1.CreateOptions{})
	if err == nil || !strings.Contains(err.Error(), "violates PodSecurity") {
		t.Errorf("a pod that is not restricted: %v", err)
	}
}

// checkLists: what is eager is answered from memory at once, and what else the policy keeps soon.
func checkLists(t *testing.T, r *release) {
	admin := r.client(t, r.c.cp.RESTConfig(controlplane.Admin))
	for _, eager := range []string{"pods", "nodes"} { // the chart's
		if a := reviewed(t, admin, "/api/v1/"+eager+"?resourceVersion=0"); a.Code != http.StatusOK || !a.FromMemory() {
			t.Errorf("%s: %s", eager, a)
		}
	}
	for _, target := range readPolicy(t, render(t, values(t, "{}")).objects).Targets() {
		path := "/apis/" + target.Group + "/v1/" + target.Resource + "?resourceVersion=0"
		switch target.Group {
		case "":
			path = strings.Replace(path, "/apis/", "/api", 1)
		case "autoscaling":
			path = strings.Replace(path, "/v1/", "/v2/", 1)
		}
		poll.Until(t, patience, path+" from memory", func() bool {
			a := get(t, admin, path)
			if a.Code != http.StatusOK {
				t.Fatalf("%s: %s", path, a)
			}
			return a.FromMemory()
		})
	}
	if a := get(t, admin, "/api/v1/secrets?resourceVersion=0"); a.Code != http.StatusOK || !strings.Contains(a.Source(), "detail=not-cached") {
		t.Errorf("Secrets: %d, %s", a.Code, a.Source())
	}
}

// checkHelmTest: helm test makes a pod with an account of its own; this test is its kubelet, and
// runs its container with the real listproxy, which finds the Service by its name.
func checkHelmTest(t *testing.T, r *release) {
	cmd := command(t, r.args("test", "--timeout", "2m")...)
	var out logbuffer.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	expect.NoError(t, cmd.Start())
	pods := r.c.admin.CoreV1().Pods(r.namespace)
	var pod *corev1.Pod
	poll.Until(t, patience, "a pod of helm test", func() bool {
		var err error
		pod, err = pods.Get(t.Context(), r.name+"-test", metav1.GetOptions{})
		return err == nil
	})
	printed := r.c.runToEnd(t, pod, buildImage(t))
	if !strings.Contains(printed, "from memory") || !strings.Contains(printed, "Cache-Status: listproxy; hit; detail=any") {
		t.Errorf("not from memory: %s", printed)
	}
	pod.Status.Phase = corev1.PodSucceeded
	_, err := pods.UpdateStatus(t.Context(), pod, metav1.UpdateOptions{})
	expect.NoError(t, err)
	if err := cmd.Wait(); err != nil {
		t.Errorf("helm test: %v\n%s", err, out.String())
	}
}

// The Secrets with the chart's certificate, by the name that docs/operate.md gives, and with another.
const madeSecret, ownSecret = "listproxy-tls", "our-own"

// checkUpgrade: what need not change does not, above all what clients trust.
func checkUpgrade(t *testing.T, r *release) {
	r.apply(t, "{}")
	pods, made := r.deployment(t).Spec.Template, r.certificate(t)
	r.apply(t, "replicas: 3")
	more := r.deployment(t).Spec
	expect.Same(t, int32(3), *more.Replicas)
	expect.Same(t, pods, more.Template)
	if !cmp.Equal(made.Data, r.certificate(t).Data) { // with a key, which is not printed
		t.Error("the certificate is another one after an upgrade")
	}

	// With another name the certificate is another one, of the CA that clients trust.
	r.apply(t, "tls: {extraHosts: [lists.example.com, 10.1.2.3]}")
	renewed := r.certificate(t)
	expect.NoError(t, verify(renewed, "listproxy.proxies.svc", "lists.example.com", "10.1.2.3"))
	expect.Same(t, made.Data["ca.crt"], renewed.Data["ca.crt"])

	// Another's certificate, and back.
	_, err := r.tryApply(t, "tls: {mode: existing, existingSecret: "+madeSecret+"}")
	if err == nil || !strings.Contains(err.Error(), "tls.existingSecret: ") || !strings.Contains(err.Error(), "copy it") {
		t.Errorf("tls.existingSecret names what goes with the upgrade: %v", err)
	}
	r.own(t, renewed.Data["tls.crt"], renewed.Data["tls.key"])
	r.apply(t, "tls: {mode: existing, existingSecret: "+ownSecret+"}")
	expect.Same(t, ownSecret, r.mounted(t))
	mustHelm(t, r.args("rollback")...)
	expect.Same(t, madeSecret, r.mounted(t))
	back := r.certificate(t)
	if !cmp.Equal(renewed.Data, back.Data) || back.Type != corev1.SecretTypeTLS {
		t.Error("another certificate after a rollback: no client trusts its CA")
	}
}

// own makes the Secret with the other.
func (r *release) own(t *testing.T, cert, key []byte) {
	t.Helper()
	r.c.kubectl(t, "", "-n", r.namespace, "create", "secret", "tls", ownSecret, "--cert="+values(t, string(cert)), "--key="+values(t, string(key)))
}

// mounted is the Secret with the serving certificate that pods mount.
func (r *release) mounted(t *testing.T) string {
	t.Helper()
	volumes := r.deployment(t).Spec.Template.Spec.Volumes
	return volumes[slices.IndexFunc(volumes, func(v corev1.Volume) bool { return v.Name == "tls" })].Secret.SecretName
}

// checkAutoscaling: as docs/operate.md has it, Helm leaves alone how many replicas somebody else
// has set, when it does not say so any more; and does not take it back unless it is told to.
func checkAutoscaling(t *testing.T, r *release) {
	r.c.kubectl(t, "", "-n", r.namespace, "scale", "--replicas=4", "deployment/"+r.name)
	r.apply(t, "autoscaling: {enabled: true}")
	expect.Same(t, int32(4), *r.deployment(t).Spec.Replicas)
	if _, err := r.tryApply(t, "autoscaling: {enabled: false}"); err == nil || !strings.Contains(err.Error(), ".spec.replicas") {
		t.Errorf("back again: %v", err)
	}
	r.apply(t, "autoscaling: {enabled: false}", "--force-conflicts")
	expect.Same(t, int32(2), *r.deployment(t).Spec.Replicas)
}

// checkCertificates: users of client certificates are themselves, and only those who are named.
func checkCertificates(t *testing.T, r *release) {
	const path = "/api/v1/namespaces/team-a/pods?resourceVersion=0"
	named := r.client(t, r.c.cp.CertConfig(controlplane.CertUser))
	if a := get(t, named, path); a.Code != http.StatusForbidden || !strings.Contains(string(a.Body), `User \"`+controlplane.CertUser+`\" cannot list`) {
		t.Errorf("a user who is named: %s", a)
	}
	cert, key, err := r.c.cp.IssueCert("mallory", "system:masters")
	expect.NoError(t, err)
	named.CertData, named.KeyData = cert, key
	if a := get(t, named, path); a.Code != http.StatusForbidden || !strings.Contains(string(a.Body), "cannot impersonate") {
		t.Errorf("a user who is not named: %s", a)
	}
}

// checkTunnel: the other door, as kubectl's proxy-url, opens with the one CA.
func checkTunnel(t *testing.T, r *release) {
	tunnel := r.c.cp.RESTConfig(controlplane.Admin)
	tunnel.CAData = r.certificate(t).Data["ca.crt"]
	tunnel.Proxy = http.ProxyURL(&url.URL{Scheme: "https", Host: fmt.Sprintf("%s:%d", r.address, r.connect)})
	if a := reviewed(t, tunnel, "/api/v1/pods?resourceVersion=0"); a.Code != http.StatusOK || !a.FromMemory() {
		t.Errorf("through a tunnel: %s", a)
	}
}
