package main

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"
)

const (
	// A name or address that a test has just made takes a moment to be known to all.
	patience = 30 * time.Second
	// Folders with tls.crt and tls.key, and with ca.crt.
	serverCertificate = "/tls"
	listen            = ":8443"
)

// get URL prints what is there, trusting the authority in /tls/ca.crt if that exists. It tries again for a while.
func get(words []string) error {
	if len(words) != 1 {
		return errors.New("needs URL")
	}
	trust := &tls.Config{}
	if authority, err := os.ReadFile(filepath.Join(serverCertificate, "ca.crt")); err == nil {
		trust.RootCAs = x509.NewCertPool()
		trust.RootCAs.AppendCertsFromPEM(authority)
	}
	client := &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{TLSClientConfig: trust}}
	end := time.Now().Add(patience)
	for {
		text, err := fetch(client, words[0])
		if err == nil {
			fmt.Print(text)
			return nil
		}
		if time.Now().After(end) {
			return err
		}
		time.Sleep(200 * time.Millisecond)
	}
}

func fetch(client *http.Client, url string) (string, error) {
	response, err := client.Get(url)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(io.LimitReader(response.Body, 1<<20))
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", response.Status, text)
	}
	return string(text), err
}

// serve TEXT answers every request with the text: over TLS where there is a certificate, otherwise plainly on 8080.
func serve(words []string) error {
	handler := http.HandlerFunc(func(to http.ResponseWriter, _ *http.Request) {
		fmt.Fprintln(to, strings.Join(words, " "))
	})
	if _, err := os.Stat(filepath.Join(serverCertificate, "tls.crt")); err != nil {
		return http.ListenAndServe(":8080", handler)
	}
	return serveTLS(handler)
}

func serveTLS(handler http.Handler) error {
	return http.ListenAndServeTLS(listen,
		filepath.Join(serverCertificate, "tls.crt"), filepath.Join(serverCertificate, "tls.key"), handler)
}

// webhook is an admission webhook that refuses every object with the words as its reason.
func webhook(words []string) error {
	return serveTLS(http.HandlerFunc(func(to http.ResponseWriter, request *http.Request) {
		var review struct {
			Request struct {
				UID string `json:"uid"`
			} `json:"request"`
		}
		if err := json.NewDecoder(io.LimitReader(request.Body, 4<<20)).Decode(&review); err != nil {
			http.Error(to, err.Error(), http.StatusBadRequest)
			return
		}
		answer(to, object{
			"apiVersion": "admission.k8s.io/v1",
			"kind":       "AdmissionReview",
			"response": object{
				"uid":     review.Request.UID,
				"allowed": false,
				"status":  object{"message": strings.Join(words, " ")},
			},
		})
	}))
}

// aggregated GROUP serves a group of the API with one resource, greetings, that says who the API server says is asking.
func aggregated(words []string) error {
	if len(words) != 1 {
		return errors.New("needs GROUP")
	}
	group := words[0]
	version := object{"groupVersion": group + "/v1", "version": "v1"}
	paths := http.NewServeMux()
	paths.HandleFunc("/apis", func(to http.ResponseWriter, _ *http.Request) {
		answer(to, object{"kind": "APIGroupList", "apiVersion": "v1", "groups": []object{
			{"name": group, "versions": []object{version}, "preferredVersion": version},
		}})
	})
	paths.HandleFunc("/apis/"+group+"/v1", func(to http.ResponseWriter, _ *http.Request) {
		answer(to, object{"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": group + "/v1", "resources": []object{
			{"name": "greetings", "singularName": "greeting", "namespaced": false, "kind": "Greeting", "verbs": []string{"get"}},
		}})
	})
	paths.HandleFunc("/apis/"+group+"/v1/greetings/{name}", func(to http.ResponseWriter, request *http.Request) {
		answer(to, object{
			"kind": "Greeting", "apiVersion": group + "/v1", "metadata": object{"name": request.PathValue("name")},
			"user": request.Header.Get("X-Remote-User"),
		})
	})
	return serveTLS(paths)
}

type object map[string]any

func answer(to http.ResponseWriter, body any) {
	to.Header().Set("Content-Type", "application/json")
	if err := json.NewEncoder(to).Encode(body); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
}
