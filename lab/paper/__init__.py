"""The paper as a program: Tables 5 to 8 and Figure 5 of Devlin et al. 2018, made of the scripts."""
