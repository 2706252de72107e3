// Package kubehttp has HTTP code for the Kubernetes API that several packages share:
//
//   - facts about a request: what kube-apiserver reads from it ([Request]), and words for the log
//   - listproxy's own answers, which look like kube-apiserver's, and the header that says where an answer came from
//   - clients that follow no redirects ([NewClient]), and files that are read again ([ReloadFiles])
package kubehttp
