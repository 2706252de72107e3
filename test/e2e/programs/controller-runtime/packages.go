// Package packages names the packages whose tests are built, so that the module has what they need.
package packages

import (
	_ "sigs.k8s.io/controller-runtime/pkg/cache"
	_ "sigs.k8s.io/controller-runtime/pkg/client"
	_ "sigs.k8s.io/controller-runtime/pkg/manager"
)
