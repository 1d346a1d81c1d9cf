"""The trusted side's handles on processes that run code of others: started, asked, watched and ended from here."""
