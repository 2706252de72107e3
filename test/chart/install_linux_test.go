package chart

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/listproxy/listproxy/test/controlplane"
	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/harness/logbuffer"
	"github.com/listproxy/listproxy/test/harness/poll"
)

// TestInstall: from nothing to a listproxy that answers, upgraded, and away again.
func TestInstall(t *testing.T) {
	c := newCluster(t)
	before := c.untouched(t)
	r := c.newRelease(t, "listproxy", "proxies")
	notes := r.apply(t, "{}")

	t.Run("notes", func(t *testing.T) {
		rest := notes
		for _, command := range []string{
			"kubectl -n proxies rollout status deployment/listproxy",
			"listproxy kubeconfig --certificate-authority listproxy-ca.crt --server https://localhost:8443",
			"listproxy try --kubeconfig proxy.kubeconfig '/api/v1/namespaces?resourceVersion=0'",
			"helm -n proxies test listproxy",
		} {
			_, after, ok := strings.Cut(rest, command)
			if !ok {
				t.Errorf("the notes do not say %q, or not after the one before:\n%s", command, notes)
				continue
			}
			rest = after
		}
	})
	if err := verify(r.certificate(t), "listproxy", "listproxy.proxies.svc", "listproxy.proxies.svc.cluster.local", "kubernetes.default.svc", "localhost", "127.0.0.1"); err != nil {
		t.Error(err)
	}
	t.Run("rights", func(t *testing.T) { checkRights(t, r) })
	pod := r.run(t)
	t.Run("lists", func(t *testing.T) { checkLists(t, r) })
	t.Run("restricted", func(t *testing.T) { checkRestricted(t, r) })
	t.Run("helm test", func(t *testing.T) { checkHelmTest(t, r) })
	pod.stop(t)
	t.Run("upgrade", func(t *testing.T) { checkUpgrade(t, r) })
	t.Run("autoscaling", func(t *testing.T) { checkAutoscaling(t, r) })

	r.helm(t, "uninstall")
	// --create-namespace is Helm's own, which leaves it.
	want := append(slices.Clone(before), "/namespaces//proxies")
	slices.Sort(want)
	if diff := cmp.Diff(want, c.everything(t)); diff != "" {
		t.Errorf("left behind (-want +got):\n%s", diff)
	}
}

// everybodys are the rights of every authenticated account (system:basic-user).
var everybodys = []string{
	"create authentication.k8s.io/selfsubjectreviews",
	"create authorization.k8s.io/selfsubjectaccessreviews",
	"create authorization.k8s.io/selfsubjectrulesreviews",
}

// checkRestricted: kube-apiserver takes the pods where the strictest of the Pod Security Standards
// holds, as it does from here on in the namespace.
func checkRestricted(t *testing.T, r *release) {
	enforce := []byte(`{"metadata":{"labels":{"pod-security.kubernetes.io/enforce":"restricted"}}}`)
	if _, err := r.c.admin.CoreV1().Namespaces().Patch(t.Context(), r.namespace, types.MergePatchType, enforce, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	pods := r.c.admin.CoreV1().Pods(r.namespace)
	dryRun := metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}
	template := r.deployment(t).Spec.Template
	template.GenerateName = r.name + "-"
	ours := &corev1.Pod{ObjectMeta: template.ObjectMeta, Spec: template.Spec}
	lax := ours.DeepCopy()
	lax.Spec.SecurityContext = &corev1.PodSecurityContext{}
	// What admits pods hears of the label a moment later.
	poll.Until(t, patience, "what is not restricted is refused", func() bool {
		_, err := pods.Create(t.Context(), lax, dryRun)
		return apierrors.IsForbidden(err)
	})
	if _, err := pods.Create(t.Context(), ours, dryRun); err != nil {
		t.Error(err)
	}
}

// awaitRights waits until an account may do that, and nothing else at all.
func (r *release) awaitRights(t *testing.T, account, namespace string, want ...string) {
	t.Helper()
	slices.Sort(want)
	var diff string
	err := poll.Retry(t.Context(), "rights of "+account+" in "+namespace, func() error {
		if diff = cmp.Diff(want, r.rightsOf(t, account, namespace)); diff != "" {
			return errors.New(diff)
		}
		return nil
	})
	expect.NoError(t, err)
}

// checkRights: the account may do what it needs, and nothing else at all.
func checkRights(t *testing.T, r *release) {
	config := readPolicy(t, objects(t, r.manifest(t)))
	var reads []string
	for _, name := range append(kept(config), fixed...) {
		reads = append(reads, "list "+name, "watch "+name)
	}
	leases := []string{"list coordination.k8s.io/leases", "watch coordination.k8s.io/leases"}
	for namespace, want := range map[string][]string{
		"default":     slices.Concat(reads, everybodys),
		"proxies":     slices.Concat(reads, everybodys),
		"kube-system": slices.Concat(reads, everybodys, leases),
	} {
		r.awaitRights(t, r.name, namespace, want...)
	}
}

// checkLists: what is eager is answered from memory at once, what else the policy keeps soon, and
// only to those who may see it.
func checkLists(t *testing.T, r *release) {
	admin := r.client(t, r.c.cp.RESTConfig(controlplane.Admin))
	alice := r.client(t, r.c.cp.RESTConfig(controlplane.Alice))
	for _, eager := range []string{"pods", "nodes"} { // the chart's
		path := "/api/v1/" + eager + "?resourceVersion=0"
		if code, from, _ := reviewed(t, admin, path); code != http.StatusOK || !strings.Contains(from, "; hit") {
			t.Errorf("%s: %d, %s", path, code, from)
		}
	}
	config := readPolicy(t, objects(t, r.manifest(t)))
	versions := map[string]string{"autoscaling": "v2"}
	for _, target := range config.Targets() {
		version, other := versions[target.Group]
		if !other {
			version = "v1"
		}
		path := "/apis/" + target.Group + "/" + version + "/" + target.Resource + "?resourceVersion=0"
		if target.Group == "" {
			path = "/api/" + version + "/" + target.Resource + "?resourceVersion=0"
		}
		poll.Until(t, patience, path+" from memory", func() bool {
			code, from, body := get(t, admin, path)
			if code != http.StatusOK {
				t.Fatalf("%s: %d %s", path, code, body)
			}
			return strings.Contains(from, "; hit")
		})
	}
	for path, want := range map[string]int{
		"/api/v1/namespaces/team-a/pods?resourceVersion=0": http.StatusOK,
		"/api/v1/namespaces/team-b/pods?resourceVersion=0": http.StatusForbidden,
		"/api/v1/pods?resourceVersion=0":                   http.StatusForbidden,
	} {
		code, from, body := reviewed(t, alice, path)
		if code != want || (want == http.StatusOK) != strings.Contains(from, "; hit") {
			t.Errorf("alice, %s: %d, %s: %s", path, code, from, body)
		}
	}
	if code, from, _ := get(t, admin, "/api/v1/secrets?resourceVersion=0"); code != http.StatusOK || !strings.Contains(from, "detail=not-cached") {
		t.Errorf("Secrets: %d, %s", code, from)
	}
}

// reviewed is get, again for as long as the review of what the caller may fails.
func reviewed(t *testing.T, cfg *rest.Config, path string) (code int, cacheStatus, body string) {
	t.Helper()
	poll.Reviewed(t.Context(), patience, func() string {
		code, cacheStatus, body = get(t, cfg, path)
		return cacheStatus
	})
	return code, cacheStatus, body
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
	account := pod.Spec.ServiceAccountName
	if account == r.deployment(t).Spec.Template.Spec.ServiceAccountName {
		t.Errorf("helm test has listproxy's own account, %s", account)
	}
	for namespace, want := range map[string][]string{
		r.namespace: append(slices.Clone(everybodys), "list /pods"),
		"default":   everybodys,
	} {
		r.awaitRights(t, account, namespace, want...)
	}
	printed := r.c.runToEnd(t, r.namespace, pod.Spec, buildImage(t))
	want := map[string][]string{
		"list": {"from memory", "Cache-Status: listproxy; hit; detail=any"},
	}
	for name, text := range printed {
		for _, words := range want[name] {
			if !strings.Contains(text, words) {
				t.Errorf("%s does not say %q: %s", name, words, text)
			}
		}
	}
	names := slices.Sorted(maps.Keys(printed))
	if diff := cmp.Diff(slices.Sorted(maps.Keys(want)), names); diff != "" {
		t.Errorf("containers (-want +got):\n%s", diff)
	}
	pod.Status.Phase = corev1.PodSucceeded
	if _, err := pods.UpdateStatus(t.Context(), pod, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("helm test: %v\n%s", err, out.String())
	}
}

// checkUpgrade: what need not change does not, above all what clients trust.
func checkUpgrade(t *testing.T, r *release) {
	const checksum = "checksum/policy"
	first, tls := r.deployment(t), r.certificate(t)

	r.apply(t, "replicas: 3")
	second := r.deployment(t)
	if *second.Spec.Replicas != 3 {
		t.Errorf("%d replicas", *second.Spec.Replicas)
	}
	if diff := cmp.Diff(first.Spec.Template, second.Spec.Template); diff != "" {
		t.Errorf("more replicas are others:\n%s", diff)
	}
	if diff := cmp.Diff(tls.Data, r.certificate(t).Data); diff != "" {
		t.Error("the certificate is another one after an upgrade")
	}

	r.apply(t, "{eager: [services], policy: {resources: [{group: '', resource: services, cache: onDemand}]}}")
	third := r.deployment(t)
	if third.Spec.Template.Annotations[checksum] == second.Spec.Template.Annotations[checksum] {
		t.Error("another policy has the same checksum, and pods go on with the old one")
	}
	poll.Until(t, patience, "no right to list pods, which are not kept any more", func() bool {
		return !slices.Contains(r.rights(t, "default"), "list /pods")
	})
	pod := r.run(t)
	admin := r.client(t, r.c.cp.RESTConfig(controlplane.Admin))
	if _, from, _ := reviewed(t, admin, "/api/v1/services?resourceVersion=0"); !strings.Contains(from, "; hit") {
		t.Errorf("services after the upgrade: %s", from)
	}
	if _, from, _ := get(t, admin, "/api/v1/pods?resourceVersion=0"); !strings.Contains(from, "detail=not-cached") {
		t.Errorf("pods after the upgrade: %s", from)
	}
	pod.stop(t)

	r.apply(t, "tls: {extraHosts: [lists.example.com, 10.1.2.3]}")
	renewed := r.certificate(t)
	if err := verify(renewed, "listproxy.proxies.svc", "lists.example.com", "10.1.2.3"); err != nil {
		t.Errorf("with another name: %v", err)
	}
	if diff := cmp.Diff(tls.Data["ca.crt"], renewed.Data["ca.crt"]); diff != "" {
		t.Error("with another name, the CA is another one, too: no client trusts it")
	}

	// Another's certificate, and back.
	_, err := r.tryApply(t, "tls: {mode: existing, existingSecret: "+madeSecret+"}")
	if err == nil || !strings.Contains(err.Error(), "tls.existingSecret: ") || !strings.Contains(err.Error(), "copy it") {
		t.Errorf("tls.existingSecret names what goes with the upgrade: %v", err)
	}
	own := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: ownSecret}, Type: corev1.SecretTypeTLS, Data: renewed.Data}
	_, err = r.c.admin.CoreV1().Secrets(r.namespace).Create(t.Context(), own, metav1.CreateOptions{})
	expect.NoError(t, err)
	r.apply(t, "tls: {mode: existing, existingSecret: "+ownSecret+"}")
	r.checkMounted(t, ownSecret)
	r.helm(t, "rollback")
	r.checkMounted(t, madeSecret)
	if diff := cmp.Diff(renewed.Data, r.certificate(t).Data); diff != "" {
		t.Error("another certificate after a rollback: no client trusts its CA")
	}
	expect.NoError(t, r.c.admin.CoreV1().Secrets(r.namespace).Delete(t.Context(), ownSecret, metav1.DeleteOptions{}))
}

// checkAutoscaling: as docs/operate.md has it, Helm leaves alone how many replicas somebody else
// has set, when it does not say so any more; and does not take it back unless it is told to.
func checkAutoscaling(t *testing.T, r *release) {
	deployments := r.c.admin.AppsV1().Deployments(r.namespace)
	scale, err := deployments.GetScale(t.Context(), r.name, metav1.GetOptions{})
	expect.NoError(t, err)
	scale.Spec.Replicas = 4
	if _, err := deployments.UpdateScale(t.Context(), r.name, scale, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	r.apply(t, "autoscaling: {enabled: true}")
	if replicas := *r.deployment(t).Spec.Replicas; replicas != 4 {
		t.Errorf("%d replicas of 4, with autoscaling", replicas)
	}
	if _, err := r.tryApply(t, "autoscaling: {enabled: false}"); err == nil || !strings.Contains(err.Error(), ".spec.replicas") {
		t.Errorf("back again: %v", err)
	}
	r.apply(t, "autoscaling: {enabled: false}", "--force-conflicts")
	if replicas := *r.deployment(t).Spec.Replicas; replicas != 2 {
		t.Errorf("%d replicas of 2, without autoscaling", replicas)
	}
}

// TestInstallWithCertificatesAndTunnels: users of client certificates are themselves, and only
// those who are named; and the other door opens with the one CA.
func TestInstallWithCertificatesAndTunnels(t *testing.T) {
	c := newCluster(t)
	r := c.newRelease(t, "lists-listproxy", "edge")
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: r.namespace}}
	if _, err := c.admin.CoreV1().Namespaces().Create(t.Context(), namespace, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	ca := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "client-ca"}, Data: map[string]string{"bundle": string(c.cp.CA())}}
	if _, err := c.admin.CoreV1().ConfigMaps(r.namespace).Create(t.Context(), ca, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	r.apply(t, `
clientCertificates: {enabled: true, caConfigMap: {name: client-ca, key: bundle}}
impersonation: {users: [`+controlplane.CertUser+`]}
connect: {enabled: true}
`)
	want := []string{
		"impersonate /groups/system:authenticated",
		"impersonate /users/" + controlplane.CertUser,
		"impersonate authentication.k8s.io/userextras/authentication.kubernetes.io/credential-id",
	}
	poll.Until(t, patience, "those rights to impersonate, and no others", func() bool {
		return slices.Equal(want, slices.DeleteFunc(r.rights(t, "default"), func(right string) bool { return !strings.HasPrefix(right, "impersonate ") }))
	})

	pod := r.run(t)
	named := r.client(t, c.cp.CertConfig(controlplane.CertUser))
	code, _, body := get(t, named, "/api/v1/namespaces/team-a/pods?resourceVersion=0")
	if code != http.StatusForbidden || !strings.Contains(body, `User \"`+controlplane.CertUser+`\" cannot list`) {
		t.Errorf("a user who is named: %d %s", code, body)
	}
	cert, key, err := c.cp.IssueCert("mallory", "system:masters")
	expect.NoError(t, err)
	other := rest.CopyConfig(named)
	other.CertData, other.KeyData = cert, key
	code, _, body = get(t, other, "/api/v1/namespaces/team-a/pods?resourceVersion=0")
	if code != http.StatusForbidden || !strings.Contains(body, "cannot impersonate") {
		t.Errorf("a user who is not named: %d %s", code, body)
	}

	// The other door, as kubectl's proxy-url.
	tunnel := c.cp.RESTConfig(controlplane.Admin)
	tunnel.CAData = r.certificate(t).Data["ca.crt"]
	tunnel.Proxy = http.ProxyURL(&url.URL{Scheme: "https", Host: fmt.Sprintf("127.0.0.1:%d", r.connect)})
	if code, from, body := reviewed(t, tunnel, "/api/v1/pods?resourceVersion=0"); code != http.StatusOK || !strings.Contains(from, "; hit") {
		t.Errorf("through a tunnel: %d, %s: %s", code, from, body)
	}
	pod.stop(t)
	r.helm(t, "uninstall")
}

// The Secrets with the chart's certificate, by the name that docs/operate.md gives, and with another.
const madeSecret, ownSecret = "listproxy-tls", "our-own"

// checkMounted: pods mount the Secret, which has a certificate for the Service.
func (r *release) checkMounted(t *testing.T, secret string) {
	t.Helper()
	pod := r.deployment(t).Spec.Template.Spec
	i := slices.IndexFunc(pod.Volumes, func(v corev1.Volume) bool { return v.Name == "tls" })
	if got := pod.Volumes[i].Secret.SecretName; got != secret {
		t.Errorf("mounted is %s, not %s", got, secret)
	}
	s, err := r.c.admin.CoreV1().Secrets(r.namespace).Get(t.Context(), secret, metav1.GetOptions{})
	expect.NoError(t, err)
	if err := verify(s, r.name+"."+r.namespace+".svc"); err != nil || s.Type != corev1.SecretTypeTLS {
		t.Errorf("%s is a %s: %v", secret, s.Type, err)
	}
}
