package chart

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/listproxy/listproxy/test/controlplane"
	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/harness/poll"
)

// The names that docs/operate.md gives.
const (
	madeSecret, madeCA = "listproxy-tls", "listproxy-ca"
	issuedSecret       = "listproxy-cert-manager-tls"
	ownSecret          = "our-own"
)

// TestSwitchCertificates: from each tls.mode to each other, and back by rollback. Helm neither
// stumbles over a Secret that is not its own nor takes it away, and pods always mount one that is
// there.
func TestSwitchCertificates(t *testing.T) {
	c := newCluster(t)
	certificates := c.certManager(t)
	r := c.newRelease(t, "listproxy", "switched")
	values := map[string]string{
		"generate":     "tls: {mode: generate}",
		"cert-manager": "tls: {mode: cert-manager, certManager: {issuerRef: {name: internal}}}",
		"existing":     "tls: {mode: existing, existingSecret: " + ownSecret + "}",
	}
	mounted := map[string]string{"generate": madeSecret, "cert-manager": issuedSecret, "existing": ownSecret}

	r.apply(t, values["generate"])
	first := r.certificate(t)
	secrets := c.admin.CoreV1().Secrets(r.namespace)
	own := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: ownSecret}, Type: corev1.SecretTypeTLS, Data: first.Data}
	if _, err := secrets.Create(t.Context(), own, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	kept := []string{ownSecret} // what Helm did not make

	previous := "generate"
	for _, mode := range []string{"cert-manager", "generate", "existing", "cert-manager", "existing", "generate"} {
		t.Run(previous+" to "+mode, func(t *testing.T) {
			notes := r.apply(t, values[mode])
			if !strings.Contains(notes, "get secret "+mounted[mode]+" ") {
				t.Errorf("the notes do not name the Secret %s:\n%s", mounted[mode], notes)
			}
			issued := issue(t, r, certificates, first.Data)
			if issued != (mode == "cert-manager") {
				t.Errorf("there is a Certificate: %t", issued)
			}
			if issued && !slices.Contains(kept, issuedSecret) {
				kept = append(kept, issuedSecret)
			}
			want := slices.Clone(kept)
			if mode == "generate" {
				want = append(want, madeSecret, madeCA)
			}
			slices.Sort(want)
			if diff := cmp.Diff(want, r.secrets(t)); diff != "" {
				t.Errorf("Secrets (-want +got):\n%s", diff)
			}
			r.checkMounted(t, mounted[mode])
		})
		previous = mode
	}

	made := r.certificate(t)
	if diff := cmp.Diff(first.Data["ca.crt"], made.Data["ca.crt"]); diff == "" {
		t.Error("the made CA outlived another mode; docs/operate.md says that it does not")
	}
	_, err := r.tryApply(t, "tls: {mode: existing, existingSecret: "+madeSecret+"}")
	if err == nil || !strings.Contains(err.Error(), "tls.existingSecret: ") || !strings.Contains(err.Error(), "copy it") {
		t.Errorf("tls.existingSecret names what goes with the upgrade: %v", err)
	}

	r.apply(t, values["cert-manager"])
	r.helm(t, "rollback")
	if diff := cmp.Diff(made.Data, r.certificate(t).Data); diff != "" {
		t.Error("another certificate after a rollback: no client trusts its CA")
	}
	r.checkMounted(t, madeSecret)

	r.helm(t, "uninstall")
	slices.Sort(kept)
	if diff := cmp.Diff(kept, r.secrets(t)); diff != "" {
		t.Errorf("Secrets after the end (-want +got):\n%s", diff)
	}
}

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

// secrets are the names of the Secrets in the release's namespace, but for Helm's own records,
// sorted.
func (r *release) secrets(t *testing.T) []string {
	t.Helper()
	list, err := r.c.admin.CoreV1().Secrets(r.namespace).List(t.Context(), metav1.ListOptions{LabelSelector: "owner!=helm"})
	expect.NoError(t, err)
	var names []string
	for i := range list.Items {
		names = append(names, list.Items[i].Name)
	}
	slices.Sort(names)
	return names
}

// certManager makes the cluster know of Certificates, with as much of a schema as the chart needs.
func (c *cluster) certManager(t *testing.T) dynamic.NamespaceableResourceInterface {
	t.Helper()
	client, err := dynamic.NewForConfig(c.cp.RESTConfig(controlplane.Admin))
	expect.NoError(t, err)
	definition := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
		"metadata": map[string]any{"name": "certificates.cert-manager.io"},
		"spec": map[string]any{
			"group": "cert-manager.io", "scope": "Namespaced",
			"names": map[string]any{"plural": "certificates", "singular": "certificate", "kind": "Certificate", "listKind": "CertificateList"},
			"versions": []any{map[string]any{
				"name": "v1", "served": true, "storage": true,
				"schema": map[string]any{"openAPIV3Schema": map[string]any{
					"type":       "object",
					"properties": map[string]any{"spec": map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
				}},
			}},
		},
	}}
	definitions := client.Resource(schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"})
	if _, err := definitions.Create(t.Context(), definition, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	const version = "cert-manager.io/v1"
	poll.Until(t, patience, "Certificates in discovery", func() bool {
		_, err := c.admin.Discovery().ServerResourcesForGroupVersion(version)
		return err == nil
	})
	// That of a version is ahead of the aggregated one, which is what Helm asks for.
	poll.Until(t, patience, "Certificates in aggregated discovery", func() bool {
		_, lists, err := c.admin.Discovery().ServerGroupsAndResources()
		return err == nil && slices.ContainsFunc(lists, func(list *metav1.APIResourceList) bool {
			return list.GroupVersion == version && slices.ContainsFunc(list.APIResources, func(resource metav1.APIResource) bool {
				return resource.Name == "certificates"
			})
		})
	})
	return client.Resource(schema.GroupVersionResource{Group: "cert-manager.io", Version: "v1", Resource: "certificates"})
}

// issue does what cert-manager would: it writes the Secret that the release's Certificate names,
// over what is there, and says whether there is a Certificate. A Secret stays when its Certificate
// goes, as with cert-manager's defaults.
func issue(t *testing.T, r *release, certificates dynamic.NamespaceableResourceInterface, data map[string][]byte) bool {
	t.Helper()
	certificate, err := certificates.Namespace(r.namespace).Get(t.Context(), r.name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return false
	}
	expect.NoError(t, err)
	name, _, err := unstructured.NestedString(certificate.Object, "spec", "secretName")
	if err != nil || name == "" {
		t.Fatal(fmt.Errorf("the Certificate names no Secret: %w", err))
	}
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{"cert-manager.io/certificate-name": certificate.GetName()}},
		Type:       corev1.SecretTypeTLS, Data: data,
	}
	secrets := r.c.admin.CoreV1().Secrets(r.namespace)
	_, err = secrets.Create(t.Context(), secret, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		_, err = secrets.Update(t.Context(), secret, metav1.UpdateOptions{})
	}
	expect.NoError(t, err)
	return true
}
