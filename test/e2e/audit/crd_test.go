package audit

import (
	"context"
	"testing"

	"k8s.io/apimachinery/pkg/util/wait"
)

const widgets = `{
  "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
  "metadata": {"name": "widgets.example.com"},
  "spec": {
    "group": "example.com", "scope": "Namespaced",
    "names": {"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList"},
    "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {
      "type": "object", "x-kubernetes-preserve-unknown-fields": true}}}]
  }
}`

// createWidgets creates a kind of custom resource and waits until it can be listed.
func createWidgets(t *testing.T) {
	t.Helper()
	client := admin.Discovery().RESTClient()
	err := client.Post().AbsPath("/apis/apiextensions.k8s.io/v1/customresourcedefinitions").
		SetHeader("Content-Type", "application/json").Body([]byte(widgets)).Do(t.Context()).Error()
	if err != nil {
		t.Fatal(err)
	}
	err = wait.PollUntilContextTimeout(t.Context(), pollEvery, patience, true, func(ctx context.Context) (bool, error) {
		return client.Get().AbsPath("/apis/example.com/v1/widgets").Do(ctx).Error() == nil, nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
