package cluster

import (
	"cmp"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/listproxy/listproxy/snapshot"
)

// storageVersions is the path of the StorageVersions, which the upstream has with the feature gate StorageVersionAPI
// (off by default). In them each API server notes the version in which it writes a resource. While these differ, or are
// missing, lists of the resource are forwarded. Equal versions do not prove that the bytes are the same: another release
// can write the same version in other bytes.
//
// Resources that are stored together under several groups have one StorageVersion, for one of the groups. In
// kube-apiserver 1.36 these are only Events, which are never kept.
const storageVersions = "/apis/internal.apiserver.k8s.io/v1alpha1/storageversions"

// coreGroup stands for the core group in the name of a StorageVersion, which is group.resource
// (k8s.io/apiserver/pkg/storageversion). The name of a resource has no dots.
const coreGroup = "core"

// storageVersionChanged has a resource verified when the API servers agree again on its version.
func (c *Cluster) storageVersionChanged(agreed change[bool]) {
	differed := agreed.before != nil && !*agreed.before
	differ := agreed.after != nil && !*agreed.after
	if differ == differed {
		return
	}
	dot := strings.LastIndexByte(agreed.name, '.')
	gr := schema.GroupResource{Group: agreed.name[:max(0, dot)], Resource: agreed.name[dot+1:]}
	if gr.Group == coreGroup {
		gr.Group = ""
	}
	what := "the API servers agree again in which version they write a resource"
	if differ {
		what = "the API servers do not agree in which version they write a resource: it is forwarded until they do"
	} else {
		c.config.Verify(snapshot.OfResource(gr), what)
	}
	c.config.Log.Info(what, "resource", gr.String())
}

// storageVersionsDiffer reports whether the API servers are known to disagree on the version of a resource.
func (c *Cluster) storageVersionsDiffer(gr schema.GroupResource) bool {
	agreed, found, _ := c.versions.get(cmp.Or(gr.Group, coreGroup) + "." + gr.Resource)
	return found && !agreed
}

// readStorageVersion reports whether the API servers agree on a version.
func readStorageVersion(o *object) (agreed bool) {
	return o.Status.CommonEncodingVersion != "" && o.conditionStatus("AllEncodingVersionsEqual") != "False"
}
